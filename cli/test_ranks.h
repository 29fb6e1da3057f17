// File: cli/test_ranks.h
// Starts the ranks of `hasten test` through `hasten launch` and takes down what rank 0 says of
// their checks.
#pragma once

#include <string>
#include <vector>

#include "test_report.h"

namespace hasten::cli {

struct RanksRun {
  std::vector<std::string> words;  // of the launcher, this program first
  double limit = 60;               // seconds for each check
  bool several_machines = false;   // how long they wait for each other is the launcher's
  bool main_is_elsewhere = false;  // as far as is known: another machine has rank 0
};

void check_ranks(const RanksRun& run, TestReport& report);

}  // namespace hasten::cli
