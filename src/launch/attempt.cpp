#include "launch/attempt.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "hasten/base/text.h"
#include "launch/exit_codes.h"
#include "launch/job.h"
#include "launch/output_plan.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGraceAfterFailure = 1;  // seconds; those that wait for a dead rank

}  // namespace

Attempt::Attempt(const LaunchConfiguration& run, const Round& round, const std::string& job,
                 Membership& membership, Signals& signals)
    : options_(run.options), round_(round), job_(job), membership_(membership), signals_(signals) {
  const auto commands = rank_commands(run, round, job);
  for (std::size_t local = 0; local < commands.size(); ++local) {
    outputs_.emplace_back(output_plan(options_, round, local));
    ranks_.emplace_back(commands[local]);
  }
}

void Attempt::run() {
  while (std::any_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return !rank.ended(); })) {
    wait();
    if (deadline_ && Clock::now() >= *deadline_) kill_all();
  }
  drain();
  if (!first_failed_ && !ordered_ && stopped_by_ == 0) membership_.ended();
}

int Attempt::longest_wait() const {
  const int longest = membership_.longest_wait();
  if (!deadline_) return longest;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
  const int until = static_cast<int>(std::max<std::int64_t>(0, left));
  return longest < 0 ? until : std::min(longest, until);
}

// Until something happens.
void Attempt::wait() {
  std::vector<pollfd> files = {
      {.fd = signals_.file(), .events = POLLIN, .revents = 0},
      {.fd = membership_.file(), .events = membership_.events(), .revents = 0}};
  std::vector<std::pair<std::size_t, int>> whose = {{0, 0}, {0, 0}};
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const auto& [file, stream] :
         {std::pair{ranks_[rank].output(), 1}, {ranks_[rank].errors(), 2}}) {
      if (file < 0) continue;
      files.push_back({.fd = file, .events = POLLIN, .revents = 0});
      whose.emplace_back(rank, stream);
    }
  }
  if (poll(files.data(), files.size(), longest_wait()) < 0 && errno != EINTR) return;
  for (std::size_t i = 2; i < files.size(); ++i) {
    if (files[i].revents != 0) read_from(whose[i].first, files[i].fd, whose[i].second);
  }
  // Ends before orders: what has failed here is told as this machine's failure.
  while (const auto number = signals_.next()) {
    *number == SIGCHLD ? look_for_ends() : pass_on(*number);
  }
  if (const auto order = membership_.order(); order && !ordered_) {
    ordered_ = true;
    stop(SIGTERM, order->after_failure ? std::min(options_.grace_period, kGraceAfterFailure)
                                       : options_.grace_period);
  }
}

// False once there is nothing more to come.
bool Attempt::read_from(std::size_t local_rank, int file, int stream) {
  char buffer[16 << 10];
  const ssize_t got = read(file, buffer, sizeof buffer);
  if (got > 0) {
    outputs_[local_rank].take({buffer, static_cast<std::size_t>(got)}, stream);
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  ranks_[local_rank].close_file(file);
  return false;
}

void Attempt::drain() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const int stream : {1, 2}) {
      const int file = stream == 1 ? ranks_[rank].output() : ranks_[rank].errors();
      while (file >= 0 && read_from(rank, file, stream)) {
      }
    }
    outputs_[rank].finish();
  }
}

void Attempt::look_for_ends() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].has_just_ended()) continue;
    if (ranks_[rank].code() == 0 || first_failed_ || ordered_) continue;
    first_failed_ = rank;
    // A rank that ends by a signal that was passed on has done what it was asked: a restart would
    // undo it. The others have had the signal too, and the time to obey it.
    const int signal = ranks_[rank].code() - 128;
    if (stopped_by_ == 0 && was_passed_on(signal)) {
      end_by(signal);
      limit(options_.grace_period);
    }
    const std::string text = failure_text();
    std::fputs(("hasten launch: " + text).c_str(), stderr);
    if (stopped_by_ != 0) continue;
    membership_.failed(ranks_[rank].code(), text);
    // The others wait for it, perhaps forever.
    stop(SIGTERM, std::min(options_.grace_period, kGraceAfterFailure));
  }
}

void Attempt::pass_on(int signal) {
  if (!is_end(signal)) {
    passed_on_.push_back(signal);
    return send(signal);
  }
  if (stopped_by_ != 0 && signal == SIGINT) return kill_all();
  if (stopped_by_ == 0) end_by(signal);
  stop(signal, options_.grace_period);
}

bool Attempt::was_passed_on(int signal) const {
  return std::find(passed_on_.begin(), passed_on_.end(), signal) != passed_on_.end();
}

// The signal's code becomes that of the job, and nothing starts again.
void Attempt::end_by(int signal) {
  membership_.leaving(signal);
  stopped_by_ = signal;
}

void Attempt::stop(int signal, double grace) {
  send(signal);
  limit(grace);
}

// Ranks that are alive after `grace` seconds are killed.
void Attempt::limit(double grace) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(grace));
  if (!deadline_ || end < *deadline_) deadline_ = end;
}

void Attempt::send(int signal) {
  for (const RankProcess& rank : ranks_) {
    if (!rank.ended()) rank.send(signal);
  }
}

void Attempt::kill_all() {
  deadline_.reset();
  send(SIGKILL);
  kill_job(job_);
}

std::string Attempt::failure_text() {
  const std::size_t local = *first_failed_;
  const RankProcess& rank = ranks_[local];
  RankOutput& output = outputs_[local];
  // Its last words may still be in the pipes.
  for (const int stream : {1, 2}) {
    const int file = stream == 1 ? rank.output() : rank.errors();
    while (file >= 0 && read_from(local, file, stream)) {
    }
  }
  output.finish();
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const bool by_watchdog = rank.code() == kLateRankCode;  // and perhaps of another one's lateness
  const std::string how =
      by_watchdog ? str("was ended by its watchdog (code ", rank.code(), ")") : rank.how_it_ended();
  std::string text =
      str("rank ", round_.first_rank + static_cast<std::int64_t>(local), " on ", host, " (pid ",
          rank.process(), ") ", how, " after ", fixed(rank.seconds(), 1), " s");
  if (stopped_by_ == 0 && !by_watchdog) text += ", the first to fail";
  if (!output.kept_in().empty()) text += "; its output is in " + output.kept_in().string();
  text += output.last_lines().empty() ? "; it said nothing\n" : "; its last lines:\n";
  for (const std::string& line : output.last_lines()) text += "  | " + line + "\n";
  return text;
}

}  // namespace hasten
