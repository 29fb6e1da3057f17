// `hasten search`: searches hyper-parameters with runs of `hasten train`.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/descriptor.h"
#include "base/signal_text.h"
#include "commands/search_options.h"
#include "core_commands.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/launch/slurm_script.h"
#include "hasten/launch/worker.h"
#include "options/help.h"
#include "own_program.h"
#include "trial_process.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalExitBase = 128;  // added to the signal's number, as shells do

std::atomic<int> stop_signal = 0;

// The first signal stops the search and its runs in an orderly way. A second one ends this process,
// and the system then sends SIGTERM to the runs.
void note_stop_signal(int number) {
  stop_signal = number;
  signal(number, SIG_DFL);
}

void handle_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = note_stop_signal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

void print_note(const std::string& line) {
  std::fprintf(stderr, "hasten search: %s\n", line.c_str());
}

// Several processes would search in the same folder, and each run would join their job.
void check_single_process() {
  const Worker worker = this_worker();
  if (worker.world_size == 1) return;
  throw UsageError("search.several-processes",
                   {.what = "a search",
                    .got = str(worker.world_size, " processes of ", name_of(worker.started_by)),
                    .expected = "one process, which starts its runs itself",
                    .hint = "start hasten search without a launcher; --n_jobs runs several trials "
                            "at once, and OMP_NUM_THREADS sets the threads of each"});
}

// Locks the folder. Each run inherits the lock, so that no search continues while a run of a killed
// search is still writing.
Descriptor lock_folder(const fs::path& folder) {
  make_directories(folder);
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0 && flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  throw IoError("search.in-use",
                {.what = folder.string() + ": in use by another search, or by a run "
                                           "that a killed search left",
                 .hint = "wait until it has ended, or set another --output_dir"});
}

// The folders of runs belong to the journal next to them. If there is no journal, a different
// program made them.
void check_folder(const SearchPlan& plan) {
  if (fs::exists(plan.output_dir / "journal.jsonl")) return;
  for (std::size_t trial = 0; trial < plan.proposed.size(); ++trial) {
    const fs::path folder = run_folder(plan, static_cast<std::int64_t>(trial));
    if (!fs::exists(folder)) continue;
    throw ConfigError("search.folder", {.what = folder.string() + " exists, but no search "
                                                                  "created it",
                                        .hint = "set another --output_dir"});
  }
}

RunSettings settings_of(const SearchCommand& command, int lock) {
  RunSettings settings{
      .program = own_program(), .stop_timeout = command.stop_timeout, .lock = lock};
  const auto jobs = static_cast<unsigned>(command.n_jobs);
  if (command.n_jobs > 1 && !std::getenv("OMP_NUM_THREADS")) {
    settings.variables.push_back(
        str("OMP_NUM_THREADS=", std::max(1u, std::thread::hardware_concurrency() / jobs)));
  }
  return settings;
}

std::string progress_line(const FinishedTrial& trial, const SearchPlan& plan) {
  std::string text =
      str("trial ", trial.number, " (", join(flags_of_parameters(trial.parameters), " "),
          "): ", name_of(trial.state));
  if (trial.value) text += str(", ", plan.metric, " ", significant(*trial.value, 6));
  if (trial.state == TrialState::pruned)
    text += str(" at step ", trial.reports.rbegin()->first, ", ", plan.metric, " ",
                significant(trial.reports.rbegin()->second, 6));
  if (!trial.reason.empty()) text += ", " + trial.reason;
  return text;
}

SearchResult run_search(SearchPlan& plan, const RunSettings& settings) {
  plan.options.is_interrupted = [] { return stop_signal != 0; };
  plan.options.on_finished = [&](const FinishedTrial& trial) {
    print_note(progress_line(trial, plan));
  };
  return search_hyperparameters(
      plan.space, [&](Trial& trial) { return run_trial(trial, plan, settings); }, plan.options);
}

std::string best_text(const SearchResult& result, const SearchPlan& plan) {
  const FinishedTrial* best = result.best();
  if (!best) return "";
  std::vector<std::string> flags;
  for (const std::string& flag : flags_of_parameters(best->parameters))
    flags.push_back(shell_word(flag));
  return str("\nBest: trial ", best->number, " with ", join(flags, " "), "\nIts model is in ",
             run_folder(plan, best->number).string(), ".\n");
}

int finish(const SearchResult& result, const SearchPlan& plan, bool json) {
  write_file_atomically(plan.output_dir / "results.json", to_json(result));
  const std::string text = to_text(result, plan.metric) + best_text(result, plan);
  std::fputs(json ? to_json(result).c_str() : text.c_str(), stdout);
  if (result.interrupted) {
    print_note(str(signal_text(stop_signal), " was received: ", result.trials.size(), " of ",
                   result.n_trials, " trials have ended. The same command continues the search."));
    return kSignalExitBase + stop_signal;
  }
  if (result.best()) return 0;
  throw DataError("search.no-trial",
                  {.what = str("none of ", result.trials.size(), " trials is complete"),
                   .hint = "see log.txt in the folders run-N of " + plan.output_dir.string()});
}

}  // namespace

int search(int argc, char** argv) {
  const SearchCommand command = parse_search({argv + 2, argv + argc});
  if (command.help) {
    std::fputs(search_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  check_single_process();
  SearchPlan plan = plan_search(command, config::process_environment());
  for (const std::string& notice : plan.notices) print_note("note: " + notice);
  const Descriptor lock = lock_folder(plan.output_dir);
  check_folder(plan);
  handle_stop_signals();
  const SearchResult result = run_search(plan, settings_of(command, lock.get()));
  return finish(result, plan, command.json);
}

}  // namespace hasten::cli
