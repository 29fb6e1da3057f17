// File: cli/test_ranks.h
// Starts the ranks of `hasten test` through `hasten launch`, and records what rank 0 reports about
// their checks.
#pragma once

#include <string>
#include <vector>

#include "test_report.h"

namespace hasten::cli {

struct RankCheckOptions {
  std::vector<std::string> command;  // the launcher's command line, this program first
  double limit = 60;                 // seconds for each check
  bool several_machines = false;     // the launcher then limits how long the ranks wait at first
  bool main_rank_is_remote = false;  // true if another machine is known to have rank 0
};

void check_ranks(const RankCheckOptions& run, TestReport& report);

}  // namespace hasten::cli
