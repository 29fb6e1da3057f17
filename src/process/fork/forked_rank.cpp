#include "process/fork/forked_rank.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string_view>

#include "base/signal_text.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::string_view kConsequencePrefix = "another process has ended: ";

// Whether an exception reports that another process has ended. If two processes end at the same
// time, the other one is then the cause. Connections and shared memory report this as
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
  std::string to_text() const { return str(code, "\n", text.substr(0, 32 << 10)); }
};

std::optional<Outcome> outcome_in(const std::string& report) {
  const std::size_t line = report.find('\n');
  if (line == report.npos) return std::nullopt;
  return Outcome{.code = std::atoi(report.c_str()), .text = report.substr(line + 1)};
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
[[noreturn]] void become_rank(const std::function<void()>& function,
                              const ForkedRank::Environment& environment, int threads, int report) {
  setpgid(0, 0);
  // Handlers of the parent would act on behalf of the parent, so they are removed; signals that are
  // ignored, as with nohup, stay ignored. The parent's thread may block these signals, so they are
  // unblocked. The rank must be able to wait for processes of its own. It is no longer in the
  // foreground of a terminal, which would stop it when it reads or writes there.
  sigset_t unblocked;
  sigemptyset(&unblocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (signal(number, SIG_DFL) == SIG_IGN) signal(number, SIG_IGN);
    sigaddset(&unblocked, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &unblocked, nullptr);
  signal(SIGCHLD, SIG_DFL);
  for (const int number : {SIGTTIN, SIGTTOU}) signal(number, SIG_IGN);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  at::set_num_threads(threads);
  const Outcome outcome = run(function);
  const std::string text = outcome.to_text();
  [[maybe_unused]] const ssize_t written = write(report, text.data(), text.size());
  flush_all();
  // Not exit(), which would clean up what belongs to the parent.
  _exit(outcome.code);
}

// Returns what a non-blocking pipe holds now: processes that the rank has left behind may keep its
// other end open.
std::string read_available(int pipe) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t got = read(pipe, buffer, sizeof buffer);
    if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

// Returns whether the process has ended; waits for that unless `options` has WNOHANG. A process
// that other code has waited for has ended too. The process is not reaped, so its number is not
// reused yet.
bool has_process_ended(pid_t process, int options) {
  siginfo_t info{};
  int failed = -1;
  do {
    failed = waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT | options);
  } while (failed != 0 && errno == EINTR);
  return failed != 0 || info.si_pid == process;
}

}  // namespace

ForkedRank::ForkedRank(const std::function<void()>& function, const Environment& environment,
                       int threads) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0)
    throw IoError("process.fork", {.what = "creating a pipe",
                                   .got = std::strerror(errno),
                                   .hint = "raise the limit of open files (ulimit -n)"});
  flush_all();
  const pid_t launcher = getpid();
  process_ = fork();
  if (process_ < 0) {
    const int error = errno;
    close(report[0]);
    close(report[1]);
    throw IoError("process.fork",
                  {.what = "forking a process",
                   .got = std::strerror(error),
                   .hint = "raise the limit of processes (ulimit -u, or pids.max of the control "
                           "group), or free memory"});
  }
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);
    close(report[0]);
    become_rank(function, environment, threads, report[1]);
  }
  setpgid(process_, process_);  // in both processes, so that the group exists whichever runs first
  close(report[1]);
  report_ = report[0];
  fcntl(report_, F_SETFL, O_NONBLOCK);
  process_file_ = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
}

ForkedRank::ForkedRank(ForkedRank&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      process_file_(std::exchange(other.process_file_, -1)),
      report_(std::exchange(other.report_, -1)),
      status_(other.status_),
      text_(std::move(other.text_)) {}

ForkedRank::~ForkedRank() {
  if (process_ > 0 && !ended()) {
    send_to_group(SIGKILL);
    wait_for_end();
  }
  if (process_file_ >= 0) close(process_file_);
  if (report_ >= 0) close(report_);
}

bool ForkedRank::poll_end() {
  if (!has_process_ended(process_, WNOHANG)) return false;
  reap();
  return true;
}

void ForkedRank::wait_for_end() {
  if (ended()) return;
  has_process_ended(process_, /*options=*/0);
  reap();
}

void ForkedRank::reap() {
  send_to_group(SIGKILL);
  const auto outcome = outcome_in(read_available(report_));
  text_ = outcome ? outcome->text : "";
  int status = 0, waited = -1;
  do {
    waited = waitpid(process_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited < 0 && !outcome)
    text_ =
        "ended without a result; its exit status is unknown because this process ignores SIGCHLD "
        "or other code has waited for it";
  if (waited < 0) status = W_EXITCODE(outcome ? outcome->code : 1, 0);
  status_ = status;
}

void ForkedRank::send(int signal) const {
  if (!ended()) kill(process_, signal);
}

void ForkedRank::send_to_group(int signal) const {
  if (!ended()) kill(-process_, signal);
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
  const int number = signalled ? WTERMSIG(status) : WEXITSTATUS(status);
  const std::string how = signalled       ? "killed by " + signal_text(number)
                          : text_.empty() ? str("ended with code ", number)
                                          : text_;
  return RankError(rank,
                   {.what = str("process ", rank, " (pid ", process_, ") has failed"), .got = how},
                   signalled ? 128 + number : number);
}

}  // namespace hasten
