// Histograms, against torch.utils.tensorboard (generate_events.py).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "track/histogram.h"

namespace track_oracle_test {

using namespace hasten;

TEST_CASE("histogram: limits and counts are those of SummaryWriter.add_histogram") {
  const auto recorded = nlohmann::json::parse(
      read_file(std::string(HASTEN_TEST_DATA) + "/oracle/data/track/histograms.json"));
  for (const auto& each : recorded["histograms"]) {
    CAPTURE(each["name"]);
    const Histogram here = histogram(each["values"].get<std::vector<double>>());
    CHECK(here.count == each["num"].get<double>());
    CHECK(here.least == each["min"].get<double>());
    CHECK(here.most == each["max"].get<double>());
    CHECK(here.sum == doctest::Approx(each["sum"].get<double>()));
    CHECK(here.sum_of_squares == doctest::Approx(each["sum_squares"].get<double>()));
    CHECK(here.limits == each["limits"].get<std::vector<double>>());
    CHECK(here.counts == each["counts"].get<std::vector<double>>());
  }
}

}  // namespace track_oracle_test
