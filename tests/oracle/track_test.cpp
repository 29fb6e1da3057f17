// Compares histograms and an event file with torch.utils.tensorboard (generate_events.py).
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "track/histogram.h"
#include "track/logged_runs.h"

namespace track_oracle_test {

using namespace hasten;

TEST_CASE("histogram: limits and counts are those of SummaryWriter.add_histogram") {
  const auto recorded = nlohmann::json::parse(
      read_file(std::string(HASTEN_TEST_DATA) + "/oracle/data/track/histograms.json"));
  for (const auto& each : recorded["histograms"]) {
    CAPTURE(each["name"]);
    const Histogram here = histogram(each["values"].get<std::vector<double>>());
    CHECK(here.count == each["num"].get<double>());
    CHECK(here.min == each["min"].get<double>());
    CHECK(here.max == each["max"].get<double>());
    CHECK(here.sum == doctest::Approx(each["sum"].get<double>()));
    CHECK(here.sum_of_squares == doctest::Approx(each["sum_squares"].get<double>()));
    CHECK(here.limits == each["limits"].get<std::vector<double>>());
    CHECK(here.counts == each["counts"].get<std::vector<double>>());
  }
}

TEST_CASE("read_logged_runs: the event file of a SummaryWriter is read") {
  const auto runs =
      read_logged_runs({std::string(HASTEN_TEST_DATA) + "/oracle/data/track/events.tfevents"});
  REQUIRE(runs.size() == 1);
  const auto& curves = runs[0].curves;
  CHECK(curves.size() == 2);
  const LoggedCurve& loss = curves.at("train/loss");
  CHECK(loss.size() == 5);
  for (const auto& [step, value] : loss)
    CHECK(value == doctest::Approx(1.0 / (static_cast<double>(step) + 1)));
  CHECK(curves.at("eval/loss").at(40) == 0.5);
  CHECK(std::isnan(curves.at("eval/loss").at(50)));
}

}  // namespace track_oracle_test
