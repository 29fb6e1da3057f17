// The median pruner makes the same decisions as Optuna's.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "search/median_pruner.h"

namespace oracle_search_test {

using namespace hasten;

namespace {

TrialReports reports_in(const nlohmann::json& rows) {
  TrialReports reports;
  for (const auto& row : rows) {
    const double value =
        row[1].is_string() ? std::atof(row[1].get<std::string>().c_str()) : row[1].get<double>();
    reports[row[0].get<std::int64_t>()] = value;
  }
  return reports;
}

}  // namespace

TEST_CASE("search: 500 decisions equal those of Optuna's MedianPruner") {
  const std::filesystem::path file = HASTEN_TEST_DATA "/oracle/data/search/median_pruner.json";
  const auto cases = nlohmann::json::parse(read_file(file));
  REQUIRE(cases.size() == 500);
  for (const auto& each : cases) {
    const auto& rules = each["pruner"];
    const MedianPruner pruner{.n_startup_trials = rules["n_startup_trials"],
                              .n_warmup_steps = rules["n_warmup_steps"],
                              .interval_steps = rules["interval_steps"],
                              .n_min_trials = rules["n_min_trials"]};
    const auto direction = from_name<SearchDirection>(each["direction"].get<std::string>());
    std::vector<TrialReports> complete;
    for (const auto& rows : each["complete"]) complete.push_back(reports_in(rows));
    std::vector<const TrialReports*> pointers;
    for (const TrialReports& reports : complete) pointers.push_back(&reports);
    CAPTURE(each.dump());
    CHECK(is_worse_than_median(pruner, *direction, pointers, reports_in(each["current"])) ==
          each["prunes"].get<bool>());
  }
}

}  // namespace oracle_search_test
