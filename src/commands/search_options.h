// File: commands/search_options.h (internal)
// The options of `hasten search`, and the checks of its runs before any of them starts.
//
//   const SearchCommand command = parse_search({argv + 2, argv + argc});
//   const SearchPlan plan = plan_search(command, config::process_environment());
//   run_arguments(plan, /*trial=*/0, plan.proposed[0]);  // the arguments after `hasten`
//
// Needs no torch. Throws ConfigError "config.*" and "search.*", IoError "io.*". Thread rule: pure
// functions, except that plan_search reads the space and the configuration files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/environment.h"
#include "hasten/search/search.h"

namespace hasten {

enum class SearchPruner { median, none };
template <>
struct Names<SearchPruner> {
  static constexpr std::string_view text[] = {"median", "none"};
};

struct SearchCommand {
  bool help = false;
  std::string space;                   // A file.
  std::vector<std::string> arguments;  // The arguments after "train".

  std::string output_dir = "search";
  SearchMethod method = SearchMethod::random;
  std::optional<std::int64_t> n_trials;
  std::string metric;  // If it is empty, metric_for_best_model or eval_loss.
  std::optional<SearchDirection> direction;
  std::int64_t seed = 42;
  std::int64_t n_jobs = 1;
  SearchPruner pruner = SearchPruner::median;
  std::int64_t n_startup_trials = 5;
  std::int64_t n_warmup_steps = 0;
  std::int64_t interval_steps = 1;
  double stop_timeout = 60;  // Seconds from SIGTERM to SIGKILL.
  bool json = false;
};

// A search with all of its runs, which have been checked.
struct SearchPlan {
  SearchSpace space;
  SearchOptions options;
  std::vector<TrialParameters> proposed;
  std::vector<std::string> arguments;  // Passed to `hasten train`.
  std::vector<std::string> report_to;  // The trackers of all runs; jsonl is one of them.
  std::string metric;                  // Such as eval_loss.
  std::vector<std::string> notices;    // One line each, for standard error.
  std::filesystem::path output_dir;
};

// Parses the arguments after `search`.
HASTEN_INTERNAL_API SearchCommand parse_search(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string search_help(int width);

// Reads the space and checks every run that the search would start.
HASTEN_INTERNAL_API SearchPlan plan_search(const SearchCommand& command,
                                           const config::Environment& environment);

// Returns the folder of a trial's run, which is its output_dir.
HASTEN_INTERNAL_API std::filesystem::path run_folder(const SearchPlan& plan, std::int64_t trial);
// Returns the arguments of the run after `hasten`.
HASTEN_INTERNAL_API std::vector<std::string> run_arguments(const SearchPlan& plan,
                                                           std::int64_t trial,
                                                           const TrialParameters& parameters);
// Returns the parameters as flags, such as --learning_rate=3e-05.
HASTEN_INTERNAL_API std::vector<std::string> flags_of_parameters(const TrialParameters& parameters);

}  // namespace hasten
