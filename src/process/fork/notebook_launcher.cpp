#include "hasten/process/notebook_launcher.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/poll_timeout.h"
#include "device/device.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "launch/cores.h"
#include "launch/job.h"
#include "launch/launch_device.h"
#include "launch/rank_variables.h"
#include "launch/slurm_tasks.h"
#include "process/fork/fork_safety.h"
#include "process/fork/forked_rank.h"
#include "process/fork/group_signals.h"
#include "rendezvous/job_server.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

// The time from a failure to SIGTERM: none, or enough to notice the rank that caused the failure.
constexpr std::chrono::milliseconds kNoDelay{0}, kCauseDelay{200};
// The milliseconds between two checks where process descriptors do not exist (Linux before 5.3).
constexpr int kPollIntervalMs = 20;
// The time from SIGTERM to SIGKILL. Ranks that wait for a dead rank need no more.
constexpr auto kGrace = std::chrono::seconds(1);

// Returns the same options as hasten launch has them, with the device that the processes use.
LaunchOptions to_launch_options(const NotebookLauncherOptions& options) {
  LaunchOptions launch;
  launch.use_cpu = options.use_cpu;
  launch.mixed_precision = options.mixed_precision;
  launch.downcast_bf16 = options.downcast_bf16;
  choose_available_device(launch);
  return launch;
}

std::int64_t processes_of(const NotebookLauncherOptions& options) {
  if (options.num_processes) return *options.num_processes;
  return device_processes(to_launch_options(options)).value_or(1);
}

void check(const NotebookLauncherOptions& options, std::int64_t num_processes) {
  if (num_processes < 1 || num_processes > 4096 || options.max_restarts < 0) {
    throw UsageError("process.num-processes",
                     {.what = "notebook_launcher",
                      .got = str(num_processes, " processes, ", options.max_restarts, " restarts"),
                      .expected = "1 to 4096 processes, and 0 or more restarts"});
  }
  if (num_processes == 1) return;
  if (this_worker().world_size > 1) {
    throw UsageError("process.nested-launch", {.what = "notebook_launcher in a launched process",
                                               .hint = "start the program without a launcher"});
  }
  if (const auto count = count_of(ForkHazard::accelerator); count > 0) {
    throw UsageError("process.fork-after-accelerator",
                     {.what = "notebook_launcher while an Accelerator exists",
                      .got = str(count, count == 1 ? " Accelerator" : " Accelerators",
                                 " made for a single process"),
                      .hint = "make the Accelerator inside the function, and destroy this one "
                              "first"});
  }
  if (count_of(ForkHazard::group) > 0) {
    throw UsageError(
        "process.fork-after-group",
        {.what = "notebook_launcher while a Group of several processes exists",
         .hint = "destroy the group first: a fork has neither its connections nor its threads"});
  }
  for (const Device* device : all_devices()) device->check_fork();
}

// The ranks, the store and the signals of one attempt.
class ForkedAttempt {
 public:
  ForkedAttempt(const std::function<void()>& function, const NotebookLauncherOptions& options,
                std::int64_t num_processes, std::int64_t attempt, const std::string& job)
      : port_(/*loopback_only=*/true),
        store_port_(/*loopback_only=*/true),
        token_(rendezvous::new_token()) {
    const std::int64_t threads =
        options.num_cpu_threads_per_process > 0
            ? options.num_cpu_threads_per_process
            : threads_per_process(topology_of("/", usable_cpus()), num_processes);
    const config::Environment environment = config::whole_environment();
    const Variables slurm(environment);
    const Round round = {
        .attempt = slurm_restarts(slurm) + static_cast<int>(attempt),
        .world_size = num_processes,
        .processes = num_processes,
        .master_addr = "127.0.0.1",
        .master_port = port_.number(),
        .store = to_text(Endpoint{.host = "127.0.0.1", .port = store_port_.number()}),
        .token = token_,
        .run_id = slurm_job_name(slurm)};
    const std::vector<VariableList> of_devices =
        device_variables(to_launch_options(options), round);
    pause_openmp();
    for (std::int64_t rank = 0; rank < num_processes; ++rank) {
      ForkedRank::Environment of_rank = variables(round, rank, options, job, threads);
      append(of_rank, of_devices[static_cast<std::size_t>(rank)]);
      ranks_.emplace_back(function, of_rank, static_cast<int>(threads));
    }
    // The server has its own thread, so it is started after the forks. The ranks retry until it is
    // up.
    server_.emplace(rendezvous::ServerOptions{.port = store_port_.number(), .token = token_});
  }

  // Waits until all ranks have ended. Returns the error of the rank that failed first, if any.
  std::optional<RankError> run() {
    for (auto running = running_ranks(); !running.empty(); running = running_ranks()) {
      for (const std::size_t rank : wait_for_events(running)) {
        if (ranks_[rank].poll_end() && ranks_[rank].failed()) record_failure(rank);
      }
      if (const auto number = signals_.take()) {
        was_interrupted_ = true;
        for (const ForkedRank& rank : ranks_) rank.send_to_group(*number);
      }
      if (terminate_at_ && !kill_at_ && Clock::now() >= *terminate_at_) {
        kill_at_ = Clock::now() + kGrace;
        for (const ForkedRank& rank : ranks_) rank.send(SIGTERM);
      }
      if (kill_at_ && Clock::now() >= *kill_at_) {
        for (const ForkedRank& rank : ranks_) rank.send_to_group(SIGKILL);
      }
    }
    if (!first_failed_) return std::nullopt;
    return ranks_[*first_failed_].error(static_cast<std::int64_t>(*first_failed_));
  }

  // True if the ranks have received a signal that asks the job to end.
  bool was_interrupted() const { return was_interrupted_; }

 private:
  std::vector<std::size_t> running_ranks() const {
    std::vector<std::size_t> running;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].has_ended()) running.push_back(rank);
    }
    return running;
  }

  // Waits for the end of a rank, a signal or a deadline. Returns the ranks that may have ended.
  std::vector<std::size_t> wait_for_events(const std::vector<std::size_t>& running) const {
    std::vector<pollfd> files;
    for (const std::size_t rank : running)
      files.push_back({.fd = ranks_[rank].descriptor(), .events = POLLIN, .revents = 0});
    files.push_back({.fd = signals_.descriptor(), .events = POLLIN, .revents = 0});
    const bool all_have_files =
        std::all_of(files.begin(), files.end(), [](const pollfd& each) { return each.fd >= 0; });
    const auto deadline = kill_at_ ? kill_at_ : terminate_at_;
    int timeout = deadline ? std::max(1, poll_timeout(*deadline)) : -1;
    if (!all_have_files && (timeout < 0 || timeout > kPollIntervalMs)) timeout = kPollIntervalMs;
    poll(files.data(), files.size(), timeout);
    std::vector<std::size_t> ended;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents != 0) ended.push_back(running[i]);
    }
    return ended;
  }

  void record_failure(std::size_t rank) {
    if (first_failed_ && !is_cause_of(rank, *first_failed_)) return;
    first_failed_ = rank;
    // A rank that fails because another one has ended may be seen first, so the rank that caused
    // the failure gets a moment to be seen.
    terminate_at_ =
        Clock::now() + (ranks_[rank].failed_because_of_another() ? kCauseDelay : kNoDelay);
  }

  // Returns whether `rank` may have caused the failure of `other`, which was seen first. A rank
  // that this process has ended with SIGTERM or SIGKILL is not the cause.
  bool is_cause_of(std::size_t rank, std::size_t other) const {
    return ranks_[other].failed_because_of_another() && !ranks_[rank].failed_because_of_another() &&
           !(kill_at_ && ranks_[rank].was_terminated());
  }

  static void append(ForkedRank::Environment& all, const ForkedRank::Environment& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  static ForkedRank::Environment variables(const Round& round, std::int64_t rank,
                                           const NotebookLauncherOptions& options,
                                           const std::string& job, std::int64_t threads) {
    auto all = rank_variables(round, rank, options.max_restarts, job);
    all.emplace_back("FORK_LAUNCHED", "1");  // as Accelerate sets it
    all.emplace_back("OMP_NUM_THREADS", str(threads));
    all.emplace_back("ACCELERATE_MIXED_PRECISION", name_of(options.mixed_precision));
    if (options.use_cpu) all.emplace_back("ACCELERATE_USE_CPU", "true");
    return all;
  }

  rendezvous::ReservedPort port_, store_port_;
  std::string token_;
  GroupSignals signals_;
  std::vector<ForkedRank> ranks_;
  std::optional<rendezvous::JobServer> server_;
  std::optional<std::size_t> first_failed_;                  // the rank that failed first
  std::optional<Clock::time_point> terminate_at_, kill_at_;  // the times of SIGTERM and of SIGKILL
  bool was_interrupted_ = false;
};

}  // namespace

RankError::RankError(std::int64_t rank, ErrorText text, int exit_code)
    : Error("process.rank-failed", std::move(text), exit_code), rank(rank) {}

void notebook_launcher(const std::function<void()>& function,
                       const NotebookLauncherOptions& options) {
  const std::int64_t num_processes = processes_of(options);
  check(options, num_processes);
  if (num_processes == 1) return function();
  const std::string job = new_job_name();
  for (std::int64_t attempt = 0;; ++attempt) {
    ForkedAttempt ranks(function, options, num_processes, attempt, job);
    const auto failure = ranks.run();
    if (!failure) return;
    if (attempt >= options.max_restarts || ranks.was_interrupted()) throw RankError(*failure);
  }
}

void debug_launcher(const std::function<void()>& function, std::int64_t num_processes) {
  notebook_launcher(function, {.num_processes = num_processes, .use_cpu = true});
}

}  // namespace hasten
