#include "launch/attempt.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/poll_timeout.h"
#include "base/process_state.h"
#include "base/signal_text.h"
#include "hasten/base/text.h"
#include "launch/exit_codes.h"
#include "launch/output_plan.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollErrorPause = std::chrono::milliseconds(50);
constexpr auto kWaitForSignal = std::chrono::milliseconds(500);
constexpr double kGraceAfterFailure = 1;  // seconds; ranks that wait for a dead one need no more

}  // namespace

Attempt::Attempt(const LaunchConfiguration& run, const Round& round, const AttemptContext& context)
    : options_(run.options),
      round_(round),
      context_(context),
      suspension_(context.signals),
      cleanup_(context.processes) {
  replace_cleanup_process_if_ended();  // the process may have been killed between two attempts
  const auto commands = rank_commands(run, round, context.processes.job);
  stop_is_reported_.resize(commands.size());
  for (std::size_t local = 0; local < commands.size(); ++local) {
    outputs_.emplace_back(output_plan(options_, round, local), context.console);
    ranks_.emplace_back(commands[local], context.signals);
    exit_order_.add(local, ranks_.back().process());
  }
}

void Attempt::run() {
  while (std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return !rank.has_ended(); })) {
    wait();
    if (deadline_ && Clock::now() >= *deadline_) kill_all();
  }
  cleanup_.run();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) drain_pipes(rank);
  if (!first_failed_ && !stop_is_requested_ && termination_signal_ == 0)
    context_.controller.report_success();
}

int Attempt::longest_wait() const {
  const int longest = context_.controller.longest_wait();
  if (!deadline_) return longest;
  const int until = poll_timeout(*deadline_);
  return longest < 0 ? until : std::min(longest, until);
}

// Waits until something happens, but never waits for the reader of the launcher's output.
void Attempt::wait() {
  JobController& controller = context_.controller;
  std::vector<pollfd> files = {
      {.fd = context_.signals.descriptor(), .events = POLLIN, .revents = 0},
      {.fd = controller.descriptor(), .events = controller.events(), .revents = 0},
      {.fd = context_.console.descriptor(), .events = POLLIN, .revents = 0}};
  const std::size_t others = files.size();
  std::vector<std::pair<std::size_t, int>> owners;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const auto& [file, stream] :
         {std::pair{ranks_[rank].output(), 1}, {ranks_[rank].errors(), 2}}) {
      // A rank whose pipe is not read blocks in its write, as in a shell pipeline.
      if (file < 0 || outputs_[rank].must_wait(stream)) continue;
      files.push_back({.fd = file, .events = POLLIN, .revents = 0});
      owners.emplace_back(rank, stream);
    }
  }
  if (poll(files.data(), files.size(), longest_wait()) < 0 && errno != EINTR) {
    // poll() fails if memory is short or the limit on files is lower now. Reading never blocks.
    std::this_thread::sleep_for(kPollErrorPause);
    for (pollfd& file : files) file.revents = POLLIN;
  }
  if (files[2].revents != 0) context_.console.handle_event();
  for (std::size_t i = others; i < files.size(); ++i) {
    const auto& [rank, stream] = owners[i - others];
    if (files[i].revents != 0) read_from(rank, files[i].fd, stream);
  }
  // Handles ends before stop requests, so that a failure here is reported as a failure of this
  // machine.
  handle_signals();
  if (const auto request = controller.poll_stop_request(); request && !stop_is_requested_)
    handle_stop_request(*request);
}

// Returns the number of bytes read. It is 0 at the end, or if there are no bytes now.
std::size_t Attempt::read_from(std::size_t local_rank, int file, int stream) {
  char buffer[16 << 10];
  const ssize_t got = read(file, buffer, sizeof buffer);
  if (got > 0) {
    const auto size = static_cast<std::size_t>(got);
    outputs_[local_rank].append({buffer, size}, stream);
    return size;
  }
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) ranks_[local_rank].close_file(file);
  return 0;
}

// Reads only the bytes that are now in the pipes of a rank that has ended, because a process that
// the rank left behind may write forever. Reads even if the console is full, because the failure
// report contains the last lines.
void Attempt::drain_pipes(std::size_t local_rank) {
  for (const int stream : {1, 2}) {
    const int file = stream == 1 ? ranks_[local_rank].output() : ranks_[local_rank].errors();
    int bytes = 0;
    if (file < 0 || ioctl(file, FIONREAD, &bytes) != 0) continue;
    for (std::size_t left = static_cast<std::size_t>(bytes); left > 0;) {
      const std::size_t got = read_from(local_rank, file, stream);
      if (got == 0) break;
      left -= std::min(left, got);
    }
  }
  outputs_[local_rank].finish();
}

void Attempt::handle_signals() {
  while (const auto number = context_.signals.next()) {
    if (*number == SIGCHLD) {
      handle_ended_ranks();
    } else {
      forward_signal(*number);
    }
  }
}

void Attempt::replace_cleanup_process_if_ended() {
  const std::string news = context_.cleanup_process.replace_if_ended();
  if (!news.empty()) context_.console.print_message(news);
}

void Attempt::handle_ended_ranks() {
  replace_cleanup_process_if_ended();
  for (const std::size_t rank : ranks_in_exit_order()) {
    report_stop(rank);
    if (!ranks_[rank].has_just_ended()) continue;
    if (ranks_[rank].code() != 0 && !first_failed_ && !stop_is_requested_) handle_failure(rank);
  }
  context_.orphans.reap([this](pid_t process) {
    if (process == context_.cleanup_process.process()) return true;
    return std::any_of(ranks_.begin(), ranks_.end(), [&](const RankProcess& rank) {
      return rank.process() == process && !rank.has_ended();
    });
  });
}

// Returns all local ranks: first the ranks that have just ended, in the order that the kernel
// reports, then the others.
std::vector<std::size_t> Attempt::ranks_in_exit_order() {
  std::vector<std::size_t> order = exit_order_.next();
  const std::size_t ended = order.size();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(ended);
    if (std::find(order.begin(), end, rank) == end) order.push_back(rank);
  }
  return order;
}

void Attempt::handle_failure(std::size_t local_rank) {
  first_failed_ = local_rank;
  // A rank that ends because of a forwarded signal has done what it was asked to do, and a restart
  // would undo that. The other ranks received the signal too, and get the grace period to react.
  const int signal = ranks_[local_rank].code() - 128;
  if (termination_signal_ == 0 && comes_here_too(signal)) forward_signal(signal);
  if (termination_signal_ == 0 && was_forwarded(signal)) {
    end_job_with(signal);
    set_kill_deadline(options_.grace_period);
  }
  const std::string text = failure_text(local_rank);
  if (termination_signal_ == 0) {
    context_.controller.report_failure(ranks_[local_rank].code(), text);
    // The others may wait for the failed rank forever.
    send_termination_signal_once(SIGTERM);
    set_kill_deadline(std::min(options_.grace_period, kGraceAfterFailure));
  }
  context_.console.print_message(text);
}

// Slurm signals the launcher and the ranks one after the other. A rank that is quick may have ended
// before the launcher receives the signal.
bool Attempt::comes_here_too(int signal) const {
  const bool is_for_ranks = signal == SIGUSR1 || signal == SIGUSR2;
  return is_for_ranks && !was_forwarded(signal) &&
         context_.signals.wait_for(signal, kWaitForSignal);
}

// If another machine leaves because its ranks have ended after a forwarded signal, the ranks here
// must react in the same way, for example save. They get the same signal, unless this launcher has
// forwarded it already: a second one could end them before they have saved.
void Attempt::handle_stop_request(const StopRequest& request) {
  stop_is_requested_ = true;
  stop_signal_ = is_termination_signal(request.signal) ? 0 : request.signal;
  if (was_forwarded(stop_signal_)) {
    end_job_with(stop_signal_);
  } else {
    send_termination_signal_once(stop_signal_ == 0 ? SIGTERM : stop_signal_);
  }
  set_kill_deadline(request.after_failure ? std::min(options_.grace_period, kGraceAfterFailure)
                                          : options_.grace_period);
}

// A stopped rank looks like one that hangs, so each stop is reported once.
void Attempt::report_stop(std::size_t local_rank) {
  const auto signal = ranks_[local_rank].has_just_stopped();
  if (!signal || stop_is_reported_[local_rank]) return;
  stop_is_reported_[local_rank] = true;
  context_.console.print_message(
      str(rank_text(local_rank), " was stopped by ", signal_text(*signal),
          *signal == SIGTTIN ? ", since it reads from the terminal," : "",
          " and continues when it receives SIGCONT"));
}

// The ranks are in process groups of their own, which a terminal's SIGTSTP does not reach. SIGSTOP
// also stops a rank that handles SIGTSTP, or ignores it because it is in a session of its own. A
// limit does not include the time in which nothing could run.
void Attempt::suspend() {
  const auto began = Clock::now();
  send(SIGSTOP);
  context_.signals.suspend();
  send(SIGCONT);
  if (deadline_) *deadline_ += Clock::now() - began;
}

void Attempt::forward_signal(int signal) {
  if (signal == SIGTSTP) return suspend();
  if (!is_termination_signal(signal)) {
    // The ranks have received this signal with the stop request. A restart would undo the stop.
    if (signal == stop_signal_) return end_job_with(signal);
    forwarded_signals_.push_back(signal);
    return send(signal);
  }
  const bool is_repeated = termination_signal_ != 0;
  if (is_repeated && signal == SIGINT) return kill_all();
  if (is_repeated) {
    send_termination_signal(signal);
  } else {
    end_job_with(signal);
    send_termination_signal_once(signal);
  }
  set_kill_deadline(options_.grace_period);
}

bool Attempt::was_forwarded(int signal) const {
  return std::find(forwarded_signals_.begin(), forwarded_signals_.end(), signal) !=
         forwarded_signals_.end();
}

// Makes 128 + `signal` the exit code of the job, and prevents a restart.
void Attempt::end_job_with(int signal) {
  context_.controller.report_leaving(signal);
  termination_signal_ = signal;
}

// Many programs end at once when they receive a second signal, so ranks get only one. It may come
// from a failure, a request of the coordinator or a signal to this launcher.
void Attempt::send_termination_signal_once(int signal) {
  if (termination_signal_is_sent_) return;
  send_termination_signal(signal);
}

void Attempt::send_termination_signal(int signal) {
  termination_signal_is_sent_ = true;
  send(signal);
  send(SIGCONT);  // a stopped process handles the signal only when it continues
}

// Ranks that are still alive after `grace` seconds are killed, unless an earlier limit is set.
void Attempt::set_kill_deadline(double grace) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(grace));
  if (!deadline_ || end < *deadline_) deadline_ = end;
}

void Attempt::send(int signal) {
  for (const RankProcess& rank : ranks_) {
    if (!rank.has_ended()) rank.send(signal);
  }
}

void Attempt::kill_all() {
  deadline_.reset();
  send(SIGKILL);
  kill_job(context_.processes);
}

// Returns a text such as "rank 3 on node1 (pid 4711)".
std::string Attempt::rank_text(std::size_t local_rank) const {
  return str("rank ", round_.first_rank + static_cast<std::int64_t>(local_rank), " on ",
             host_name(), " (pid ", ranks_[local_rank].process(), ")");
}

std::string Attempt::failure_text(std::size_t local_rank) {
  const RankProcess& rank = ranks_[local_rank];
  const RankOutput& output = outputs_[local_rank];
  drain_pipes(local_rank);
  const bool by_watchdog = rank.code() == kLateRankCode;  // perhaps because another rank is late
  const std::string end_text = by_watchdog
                                   ? str("was ended by its watchdog (code ", rank.code(), ")")
                                   : rank.end_description();
  std::string text =
      str(rank_text(local_rank), " ", end_text, " after ", fixed(rank.seconds(), 1), " s");
  if (termination_signal_ == 0 && !by_watchdog) text += " (the first rank to fail)";
  if (!output.saved_path().empty()) text += "; its output is in " + output.saved_path().string();
  text += output.last_lines().empty() ? "; it printed nothing\n" : "; last lines of its output:\n";
  for (const std::string& line : output.last_lines()) text += "  | " + line + "\n";
  return text;
}

}  // namespace hasten
