#include "process/fork/group_signals.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "hasten/base/error.h"

namespace hasten {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Waits in the helper process until a signal ends it. Handlers of the parent would act on behalf of
// the parent, so they are removed; signals that are ignored, as with nohup, stay ignored.
[[noreturn]] void wait_for_a_signal(pid_t launcher, sigset_t mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_DUMPABLE, 0);
  for (const int number : kSignals) {
    if (signal(number, SIG_DFL) == SIG_IGN) signal(number, SIG_IGN);
  }
  if (getppid() != launcher) _exit(0);
  // The thread that launches may block these signals, as the threads of a notebook do.
  for (const int number : kSignals) sigdelset(&mask, number);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  while (true) pause();
}

}  // namespace

void GroupSignals::start() {
  const pid_t launcher = getpid();
  // A signal that arrives before the handlers are removed has to wait.
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int number : kSignals) sigaddset(&blocked, number);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  process_ = fork();
  const int error = errno;
  if (process_ == 0) wait_for_a_signal(launcher, before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (process_ < 0)
    throw IoError("process.fork",
                  {.what = "forking a process",
                   .got = std::strerror(error),
                   .hint = "raise the limit of processes (ulimit -u, or pids.max of the control "
                           "group), or free memory"});
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, process_, 0));
}

void GroupSignals::stop() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (descriptor_ >= 0) close(descriptor_);
  process_ = descriptor_ = -1;
}

std::optional<int> GroupSignals::take() {
  siginfo_t info{};
  const int failed = waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (failed != 0 && errno == EINTR) return std::nullopt;
  if (failed == 0 && info.si_pid != process_) return std::nullopt;
  // If other code has waited for the helper, or SIGCHLD is ignored, the signal is unknown and is
  // taken to be SIGINT.
  const int number = failed == 0 ? info.si_status : SIGINT;
  if (failed != 0) process_ = -1;
  stop();
  start();
  // Another signal has killed the helper, for example the system's SIGKILL when memory is short.
  // That is not a request to end the ranks.
  if (std::find(kSignals.begin(), kSignals.end(), number) == kSignals.end()) return std::nullopt;
  return number;
}

}  // namespace hasten
