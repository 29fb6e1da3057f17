#include "search/search_run.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kDefaultTrials = 20, kMaxTrials = 1'000'000;

std::int64_t count_of_trials(const SearchSpace& space, const SearchOptions& options) {
  if (options.method == SearchMethod::random) return options.n_trials.value_or(kDefaultTrials);
  const std::int64_t size = space.grid_size();
  return std::min(options.n_trials.value_or(size), size);
}

void check_at_least(const std::string& name, std::int64_t value, std::int64_t minimum) {
  if (value >= minimum) return;
  throw ConfigError("search.options",
                    {.what = name, .got = str(value), .expected = str(minimum, " or more")});
}

void check_search_options(const SearchSpace& space, const SearchOptions& options) {
  if (space.dimensions().empty())
    throw ConfigError(
        "search.space",
        {.what = "the search space", .got = "no parameters", .expected = "at least one"});
  check_at_least("n_trials", options.n_trials.value_or(1), 1);
  if (options.n_trials.value_or(1) > kMaxTrials)
    throw ConfigError(
        "search.options",
        {.what = "n_trials", .got = str(*options.n_trials), .expected = "at most a million"});
  check_at_least("n_jobs", options.n_jobs, 1);
  const MedianPruner pruner = options.pruner.value_or(MedianPruner{});
  check_at_least("n_startup_trials", pruner.n_startup_trials, 0);
  check_at_least("n_warmup_steps", pruner.n_warmup_steps, 0);
  check_at_least("interval_steps", pruner.interval_steps, 1);
  check_at_least("n_min_trials", pruner.n_min_trials, 1);
}

// Returns the settings that must be the same when a search continues. The number of trials, the
// pruner and n_jobs may change.
TrialJson description_of(const SearchSpace& space, const SearchOptions& options) {
  TrialJson dimensions = TrialJson::object();
  for (const SearchDimension& dimension : space.dimensions())
    dimensions[dimension.name] = to_text(dimension);
  return {{"space", dimensions},
          {"method", std::string(name_of(options.method))},
          {"direction", std::string(name_of(options.direction))},
          {"seed", options.seed},
          {"setting", options.setting}};
}

}  // namespace

std::vector<TrialParameters> proposed_parameters(const SearchSpace& space,
                                                 const SearchOptions& options) {
  check_search_options(space, options);
  std::vector<TrialParameters> all;
  const std::int64_t count = count_of_trials(space, options);
  for (std::int64_t trial = 0; trial < count; ++trial) {
    const bool is_grid = options.method == SearchMethod::grid;
    all.push_back(is_grid ? space.grid(trial) : space.random(options.seed, trial));
  }
  return all;
}

SearchRun::SearchRun(const SearchSpace& space, const TrialObjective& objective,
                     const SearchOptions& options)
    : space_(space),
      objective_(objective),
      options_(options),
      proposed_(proposed_parameters(space, options)) {
  if (!options.folder.empty()) continue_journal();
}

void SearchRun::continue_journal() {
  journal_.emplace(options_.folder, description_of(space_, options_));
  for (const JournalEntry& entry : journal_->entries()) {
    FinishedTrial trial = entry.trial;
    const bool is_grid = options_.method == SearchMethod::grid;
    const bool exists = trial.number >= 0 && (!is_grid || trial.number < space_.grid_size());
    if (exists) {
      trial.parameters =
          is_grid ? space_.grid(trial.number) : space_.random(options_.seed, trial.number);
    }
    if (!exists || parameters_json(trial.parameters) != entry.parameters ||
        !finished_.emplace(trial.number, trial).second) {
      throw DataError(
          "search.journal",
          {.what = journal_->place(entry),
           .got = str("trial ", trial.number),
           .expected = "one record for each trial, with the parameters that this search "
                       "proposes",
           .hint = "restore the file, or begin a new search in another folder"});
    }
  }
}

void SearchRun::start() {
  if (options_.n_jobs == 1) {
    run_trials();
  } else {
    std::vector<std::thread> threads;
    for (std::int64_t job = 0; job < options_.n_jobs; ++job) {
      std::thread thread = start_thread([this] { run_trials(); });
      if (thread.joinable()) threads.push_back(std::move(thread));
    }
    if (threads.empty()) run_trials();  // the system lacks threads
    for (std::thread& thread : threads) thread.join();
  }
  if (exception_) std::rethrow_exception(exception_);
}

SearchResult SearchRun::take_result() {
  SearchResult result{.direction = options_.direction,
                      .n_trials = static_cast<std::int64_t>(proposed_.size())};
  for (std::int64_t number = 0; number < result.n_trials; ++number)
    result.interrupted = result.interrupted || !finished_.count(number);
  for (auto& [number, trial] : finished_) result.trials.push_back(std::move(trial));
  return result;
}

bool SearchRun::is_interrupted() const {
  return is_ended_by_exception_ || (options_.is_interrupted && options_.is_interrupted());
}

bool SearchRun::should_prune(const TrialReports& reports) {
  if (!options_.pruner) return false;
  const std::lock_guard lock(mutex_);
  std::vector<const TrialReports*> complete;
  for (const auto& [number, trial] : finished_) {
    if (trial.state == TrialState::complete) complete.push_back(&trial.reports);
  }
  return is_worse_than_median(*options_.pruner, options_.direction, complete, reports);
}

void SearchRun::run_trials() {
  try {
    while (!is_interrupted()) {
      const auto number = next_trial();
      if (!number) return;
      run_trial(*number);
    }
  } catch (...) {
    end_by_exception(std::current_exception());
  }
}

std::optional<std::int64_t> SearchRun::next_trial() {
  const std::lock_guard lock(mutex_);
  while (next_ < static_cast<std::int64_t>(proposed_.size())) {
    const std::int64_t number = next_++;
    if (!finished_.count(number)) return number;
  }
  return std::nullopt;
}

void SearchRun::run_trial(std::int64_t number) {
  Trial trial(*this, number, proposed_[static_cast<std::size_t>(number)]);
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<double> value = call_objective(trial);
  auto finished = outcome_of(trial, value);
  if (!finished) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  finished->seconds = std::round(elapsed.count() * 1000) / 1000;
  record(std::move(*finished));
}

// If memory runs out or the loss is not finite, this trial fails, but the search continues.
std::optional<double> SearchRun::call_objective(Trial& trial) {
  try {
    return objective_(trial);
  } catch (const MemoryError& error) {
    return trial.fail(error.what());
  } catch (const DivergedError& error) {
    return trial.fail(error.what());
  }
}

// Returns nothing for a trial that the end of the search has stopped.
std::optional<FinishedTrial> SearchRun::outcome_of(const Trial& trial,
                                                   std::optional<double> value) const {
  FinishedTrial out{.number = trial.number_,
                    .parameters = trial.parameters_,
                    .reports = trial.reports_,
                    .reason = trial.failure_};
  if (value && !std::isnan(*value)) {
    out.value = value;
    return out;
  }
  out.state = TrialState::failed;
  if (value) {
    out.reason = "the objective is NaN";
  } else if (trial.failure_.empty()) {
    if (!trial.is_pruned_ && is_interrupted()) return std::nullopt;
    if (trial.is_pruned_) {
      out.state = TrialState::pruned;
    } else {
      out.reason = "the objective returned no value";
    }
  }
  return out;
}

void SearchRun::record(FinishedTrial trial) {
  const std::lock_guard lock(mutex_);
  if (journal_) journal_->append(trial);
  const auto [kept, is_new] = finished_.emplace(trial.number, std::move(trial));
  if (options_.on_finished) options_.on_finished(kept->second);
}

void SearchRun::end_by_exception(std::exception_ptr exception) {
  const std::lock_guard lock(mutex_);
  if (!exception_) exception_ = std::move(exception);
  is_ended_by_exception_ = true;
}

SearchResult search_hyperparameters(const SearchSpace& space, const TrialObjective& objective,
                                    const SearchOptions& options) {
  SearchRun run(space, objective, options);
  run.start();
  return run.take_result();
}

}  // namespace hasten
