// File: cli/trial_process.h
// One trial of `hasten search`: a run of `hasten train` in a separate process. Its evaluations are
// reported while it runs.
//
//   const std::optional<double> objective = run_trial(trial, plan, settings);
//
// The output of the run is in log.txt of its folder. Throws Error "search.run" if the run ends with
// an error that every other run would have too (exit codes 2 to 4), and IoError "launch.start".
// Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/search_options.h"

namespace hasten::cli {

struct RunSettings {
  std::string program;                 // hasten itself.
  std::vector<std::string> variables;  // NAME=value, in addition to this process's.
  double stop_timeout = 60;            // Seconds.
  int lock = -1;                       // A file that a run holds open until it has ended.
};

std::optional<double> run_trial(Trial& trial, const SearchPlan& plan, const RunSettings& settings);

}  // namespace hasten::cli
