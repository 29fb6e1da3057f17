// File: hasten/search/search.h
// Searches hyper-parameters: runs trials with proposed values, stops trials early that are worse
// than the median, and keeps a journal, from which an interrupted search continues.
//
//   const SearchResult result = search_hyperparameters(
//       SearchSpace().log_uniform("learning_rate", 1e-5, 1e-3).choice("batch", {8, 16, 32}),
//       [](Trial& trial) -> std::optional<double> {
//         double loss = 0;
//         for (int epoch = 1; epoch <= 3; ++epoch) {
//           loss = train_epoch(trial.value("learning_rate"), trial.integer("batch"));
//           trial.report(epoch, loss);
//           if (trial.should_stop()) return std::nullopt;
//         }
//         return loss;
//       },
//       {.folder = "search", .n_trials = 20});
//   std::cout << to_text(result, "loss");
//
// The Hugging Face Trainer's counterpart is Trainer.hyperparameter_search: the space corresponds to
// `hp_space`, and the function, which trains, also corresponds to `compute_objective`. `hasten
// search` runs `hasten train` in processes.
//
// The proposed values depend only on the seed and the trial's number, so a search that is
// interrupted, or runs several trials at once, proposes the same values. The folder has
// journal.jsonl, with one line for the search and one for each trial that has ended. The line of a
// trial is on the disk before the next trial begins. A search that finds the file continues it and
// does not repeat the trials in it; a trial that had not ended starts again. If a crash has left
// the last line half-written, the search logs this and removes the line.
//
// Throws ConfigError "search.space", "search.options" and "search.other-search", IoError
// "search.in-use", DataError "search.journal", and what the objective throws.
// Thread rule: search_hyperparameters calls the objective on its own thread, or with n_jobs above 1
// on n_jobs threads at once. A Trial is used on the thread that got it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/names.h"
#include "hasten/search/detail/search_space.h"

namespace hasten {

enum class SearchDirection { minimize, maximize };
template <>
struct Names<SearchDirection> {
  static constexpr std::string_view text[] = {"minimize", "maximize"};
};

enum class SearchMethod { random, grid };
template <>
struct Names<SearchMethod> {
  static constexpr std::string_view text[] = {"random", "grid"};
};

enum class TrialState {
  complete,  // It has returned its objective.
  pruned,    // It was stopped because its reports were worse than the median.
  failed,    // It ended without an objective.
};
template <>
struct Names<TrialState> {
  static constexpr std::string_view text[] = {"complete", "pruned", "failed"};
};

// Stops a trial early, like Optuna's MedianPruner, if the best of its reports is worse than the
// median of the reports of complete trials at the same step.
struct MedianPruner {
  std::int64_t n_startup_trials = 5;  // Complete trials before any is stopped.
  std::int64_t n_warmup_steps = 0;    // No trial is stopped before this step.
  std::int64_t interval_steps = 1;    // Only the first report in each interval of steps decides.
  std::int64_t n_min_trials = 1;      // Complete trials that must have reported at the step.
};

// A trial that has ended.
struct FinishedTrial {
  std::int64_t number = 0;  // From 0.
  TrialState state = TrialState::complete;
  TrialParameters parameters = {};
  std::optional<double> value = {};             // The objective of a complete trial.
  std::map<std::int64_t, double> reports = {};  // By step.
  double seconds = 0;
  std::string reason = {};  // The reason of a failure.
};

struct SearchOptions {
  std::filesystem::path folder = {};  // The folder of the journal; no journal if empty.
  // The number of trials. If unset: 20 random trials, or the whole grid.
  std::optional<std::int64_t> n_trials = {};
  SearchMethod method = SearchMethod::random;
  SearchDirection direction = SearchDirection::minimize;
  std::uint64_t seed = 42;
  std::optional<MedianPruner> pruner = MedianPruner{};  // If unset, no trial is stopped early.
  std::int64_t n_jobs = 1;                              // Trials at once.
  // Everything else that decides the result of a trial, such as the arguments of a program. A
  // search does not continue a journal that has a different setting.
  std::string setting = {};
  // Ends the search when it returns true: should_stop() becomes true in all trials, and no further
  // trial begins. Called often, on every thread of the search.
  std::function<bool()> is_interrupted = {};
  // Called after a trial has been written to the journal, by one thread at a time.
  std::function<void(const FinishedTrial&)> on_finished = {};
};

class SearchRun;

// A trial that runs.
class HASTEN_API Trial {
 public:
  Trial(SearchRun& run, std::int64_t number, TrialParameters parameters);
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  std::int64_t number() const { return number_; }
  const TrialParameters& parameters() const { return parameters_; }
  // Return the parameter with this name. Throw UsageError "search.parameter" if there is none, or
  // if it has another type. A text that can be read as a number counts as a number.
  double value(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::string text(const std::string& name) const;

  // Records the value of the objective at a step, and decides whether the trial continues. A second
  // value for a step is ignored, and so are values after the trial has been pruned. Throws
  // UsageError "search.step" for a step below 0.
  void report(std::int64_t step, double value);
  // True if the trial is pruned or the search is interrupted. The objective then returns nothing;
  // if it returns a value nevertheless, the trial is complete.
  bool should_stop() const;
  // To be called as `return trial.fail("why")`: the trial ends without a value, and the search
  // continues.
  std::nullopt_t fail(std::string reason);

 private:
  friend class SearchRun;
  const config::Value& parameter(const std::string& name) const;

  SearchRun& run_;
  std::int64_t number_;
  TrialParameters parameters_;
  std::map<std::int64_t, double> reports_;
  bool is_pruned_ = false;
  std::string failure_;
};

// Runs a trial and returns its objective, or nothing if it was stopped or has failed. NaN counts as
// a failure, and so does a MemoryError or DivergedError; any other exception ends the search.
using TrialObjective = std::function<std::optional<double>(Trial&)>;

struct HASTEN_API SearchResult {
  SearchDirection direction = SearchDirection::minimize;
  std::vector<FinishedTrial> trials;  // By number.
  std::int64_t n_trials = 0;          // The requested number.
  bool interrupted = false;
  // The complete trial with the best objective, the first of equal ones; null if none is complete.
  const FinishedTrial* best() const;
};

// Runs the search. Throws ConfigError "search.space" and "search.options" for a bad space or bad
// options, ConfigError "search.other-search" if the folder has the journal of a different search,
// IoError "search.in-use" if another process runs a search there, DataError "search.journal" for a
// damaged journal, and what the objective throws.
HASTEN_API SearchResult search_hyperparameters(const SearchSpace& space,
                                               const TrialObjective& objective,
                                               const SearchOptions& options = {});

// Returns the values of all trials of such a search, for checks before it begins.
HASTEN_API std::vector<TrialParameters> proposed_parameters(const SearchSpace& space,
                                                            const SearchOptions& options);

// Formats a table of the trials: the complete ones, best first, then the others. `objective` is the
// title of the objective's column.
HASTEN_API std::string to_text(const SearchResult& result, const std::string& objective);
// Formats {"direction": ..., "best": TRIAL, "trials": [TRIAL, ...]}, where the trials are objects
// as in the journal.
HASTEN_API std::string to_json(const SearchResult& result);

}  // namespace hasten
