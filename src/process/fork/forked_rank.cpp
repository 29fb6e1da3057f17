#include "process/fork/forked_rank.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string_view>

#include "base/parse_number.h"
#include "base/signal_text.h"
#include "hasten/base/text.h"
#include "launch/process_handle.h"
#include "process/fork/group_signals.h"

namespace hasten {
namespace {

constexpr std::string_view kConsequencePrefix = "another process has ended: ";

// Returns whether an exception reports that another process has ended. If two processes end at the
// same time, the other one is then the cause. Connections and shared memory report this as
// process.rank-missing.
bool is_consequence(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         (own != nullptr && own->code() == "process.rank-missing");
}

// The result of the function.
struct Outcome {
  int code = 0;  // the exit code of an Error, 1 for another exception
  std::string text;

  // The text includes the code because the process's status is unknown if the launching process
  // ignores SIGCHLD or waits for all of its children elsewhere.
  // The report is cut after `limit` bytes.
  std::string to_text(std::size_t limit) const { return str(code, "\n", text).substr(0, limit); }
};

// Returns how much a pipe holds, at most 32 KiB. The launching process reads it when the rank has
// ended, so a longer report would block the rank. A pipe of a user with many pipes is small.
std::size_t pipe_capacity(int pipe) {
  constexpr int kMaxReport = 32 << 10;
  const int size = fcntl(pipe, F_GETPIPE_SZ);
  return static_cast<std::size_t>(std::min(size > 0 ? size : PIPE_BUF, kMaxReport));
}

std::optional<Outcome> parse_outcome(const std::string& report) {
  const std::size_t line = report.find('\n');
  if (line == report.npos) return std::nullopt;
  const auto code = parse_number<int>(std::string_view(report).substr(0, line));
  if (!code) return std::nullopt;
  return Outcome{.code = *code, .text = report.substr(line + 1)};
}

Outcome run(const std::function<void()>& function) {
  try {
    function();
    return {};
  } catch (const Error& error) {
    return {.code = error.exit_code(),
            .text = str(is_consequence(error) ? kConsequencePrefix : "", "[", error.code(), "] ",
                        error.what())};
  } catch (const std::exception& error) {
    return {.code = 1, .text = str(is_consequence(error) ? kConsequencePrefix : "", error.what())};
  } catch (...) {
    return {.code = 1, .text = "an object that is not a std::exception"};
  }
}

// Buffered output would be written again by each fork, and would be lost by _exit().
void flush_all() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

// Runs the function in the new process and ends the process.
[[noreturn]] void run_rank_and_exit(const std::function<void()>& function,
                                    const ForkedRank::Environment& environment, int threads,
                                    int report) {
  drop_inherited_handlers();
  // The parent's thread may block these signals. The rank must be able to wait for processes of its
  // own. It is no longer in the foreground of a terminal, so the terminal would stop it when it
  // reads or writes there.
  sigset_t unblocked;
  sigemptyset(&unblocked);
  for (const int number : kTerminationSignals) sigaddset(&unblocked, number);
  pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  signal(SIGCHLD, SIG_DFL);
  for (const int number : {SIGTTIN, SIGTTOU}) signal(number, SIG_IGN);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  at::set_num_threads(threads);
  const Outcome outcome = run(function);
  const std::string text = outcome.to_text(pipe_capacity(report));
  [[maybe_unused]] const ssize_t written = write(report, text.data(), text.size());
  flush_all();
  // Does not call exit(), which would clean up what belongs to the parent.
  _exit(outcome.code);
}

// Returns what a non-blocking pipe holds now. It does not read to the end, because processes that
// the rank has left behind may keep the other end open.
std::string read_available(int pipe) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(pipe, buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

ForkedRank::ForkedRank(const std::function<void()>& function, const Environment& environment,
                       int threads) {
  auto report = ChildPipe::open();
  if (!report)
    throw IoError("process.fork", {.what = "creating a pipe",
                                   .got = std::strerror(errno),
                                   .hint = "raise the limit of open files (ulimit -n)"});
  flush_all();
  process_.emplace(ForkOptions{.leads_group = true}, [&] {
    report->read_end.close();
    run_rank_and_exit(function, environment, threads, report->write_end.get());
  });
  if (process_->error() != 0) throw_cannot_fork(process_->error());
  report_ = std::move(report->read_end);
  fcntl(report_.get(), F_SETFL, O_NONBLOCK);
  process_file_ = Descriptor(open_process(process_->number()));
}

bool ForkedRank::poll_end() {
  if (process_->state() == ChildState::running) return false;
  collect();
  return true;
}

void ForkedRank::wait_for_end() {
  if (has_ended()) return;
  process_->await_end();
  collect();
}

void ForkedRank::collect() {
  send_to_group(SIGKILL);
  const auto outcome = parse_outcome(read_available(report_.get()));
  text_ = outcome ? outcome->text : "";
  const auto status = process_->reap();
  if (!status && !outcome)
    text_ =
        "ended without a result; its exit status is unknown because this process ignores SIGCHLD "
        "or other code has waited for it";
  status_ = status.value_or(W_EXITCODE(outcome ? outcome->code : 1, 0));
}

bool ForkedRank::was_terminated() const {
  const int status = status_.value_or(0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
}

bool ForkedRank::failed_because_of_another() const {
  const int status = status_.value_or(0);
  return starts_with(text_, kConsequencePrefix) ||
         (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

RankError ForkedRank::error(std::int64_t rank) const {
  const int status = status_.value_or(0);
  const bool signalled = WIFSIGNALED(status);
  const std::string end_text = signalled       ? "killed by " + signal_text(WTERMSIG(status))
                               : text_.empty() ? str("ended with code ", WEXITSTATUS(status))
                                               : text_;
  return RankError(rank,
                   {.what = str("process ", rank, " (pid ", process_->number(), ") has failed"),
                    .got = end_text},
                   exit_code_of(status));
}

}  // namespace hasten
