// File: search/search_run.h (internal)
// A search while it runs: hands out trials to its threads, and keeps what they report.
//
//   SearchRun run(space, objective, options);
//   run.start();
//   SearchResult result = run.take_result();
//
// Thread rule: start() and take_result() on one thread; the trials call the other functions on any
// thread.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>

#include "hasten/search/search.h"
#include "search/journal.h"
#include "search/median_pruner.h"

namespace hasten {

class SearchRun {
 public:
  SearchRun(const SearchSpace& space, const TrialObjective& objective,
            const SearchOptions& options);

  void start();
  SearchResult take_result();

  bool is_interrupted() const;
  bool should_prune(const TrialReports& reports);

 private:
  void continue_journal();
  // Runs trials one after another until none is left.
  void run_trials();
  std::optional<std::int64_t> next_trial();
  void run_trial(std::int64_t number);
  std::optional<double> call_objective(Trial& trial);
  std::optional<FinishedTrial> outcome_of(const Trial& trial, std::optional<double> value) const;
  void record(FinishedTrial trial);
  void end_by_exception(std::exception_ptr exception);

  const SearchSpace& space_;
  const TrialObjective& objective_;
  const SearchOptions& options_;
  const std::vector<TrialParameters> proposed_;
  std::optional<SearchJournal> journal_;
  std::atomic<bool> is_ended_by_exception_ = false;

  std::mutex mutex_;  // guards everything below
  std::int64_t next_ = 0;
  std::map<std::int64_t, FinishedTrial> finished_;
  std::exception_ptr exception_;
};

}  // namespace hasten
