#include "process/forked_rank.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

#include "base/signal_text.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::string_view kConsequence = "another process has ended: ";

// Whether an exception tells of another process's end: of two that end at once the other is the
// cause. Gloo's exceptions have no type here, but say where they come from; memory that ranks share
// tells it as process.rank-missing.
bool is_consequence(const std::exception& error) {
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         std::string_view(error.what()).find("gloo/transport") != std::string_view::npos;
}

// The exception's own exit code where it has one.
int run(const std::function<void()>& function, int report) {
  std::string text;
  int code = 1;
  try {
    function();
    return 0;
  } catch (const Error& error) {
    const bool told_by_memory = error.code() == "process.rank-missing";
    text = str(told_by_memory ? kConsequence : "", "[", error.code(), "] ", error.what());
    code = error.exit_code();
  } catch (const std::exception& error) {
    text = str(is_consequence(error) ? kConsequence : "", error.what());
  } catch (...) {
    text = "an exception that is no std::exception";
  }
  [[maybe_unused]] const ssize_t told =
      write(report, text.data(), std::min<std::size_t>(text.size(), 32 << 10));
  return code;
}

// What this process has buffered would otherwise be written by every fork too.
void flush_all() {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
}

}  // namespace

ForkedRank::ForkedRank(const std::function<void()>& function, const Environment& environment,
                       int threads) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0)
    throw IoError("process.fork", {.what = "a pipe", .got = std::strerror(errno)});
  flush_all();
  const pid_t launcher = getpid();
  process_ = fork();
  if (process_ < 0) {
    const int error = errno;
    close(report[0]);
    close(report[1]);
    throw IoError("process.fork", {.what = "a process", .got = std::strerror(error)});
  }
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Handlers of the program it comes from would act for that.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
    if (getppid() != launcher) _exit(127);
    close(report[0]);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    at::set_num_threads(threads);
    const int code = run(function, report[1]);
    flush_all();
    // Not exit(): what this process would clean up belongs to the one it was forked from.
    _exit(code);
  }
  close(report[1]);
  report_ = report[0];
}

ForkedRank::ForkedRank(ForkedRank&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      report_(std::exchange(other.report_, -1)),
      status_(other.status_),
      text_(std::move(other.text_)) {}

ForkedRank::~ForkedRank() {
  if (process_ > 0 && !ended()) {
    send(SIGKILL);
    take_end();
  }
  if (report_ >= 0) close(report_);
}

void ForkedRank::take_end() {
  char buffer[4096];
  ssize_t got = 0;
  while ((got = read(report_, buffer, sizeof buffer)) != 0) {
    if (got > 0) text_.append(buffer, static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = status;
}

void ForkedRank::send(int signal) const {
  if (!ended()) kill(process_, signal);
}

bool ForkedRank::was_stopped() const {
  const int status = status_.value_or(0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
}

bool ForkedRank::failed_by_another() const {
  const int status = status_.value_or(0);
  return starts_with(text_, kConsequence) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
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
