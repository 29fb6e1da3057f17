#include "process/fork/group_signals.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "hasten/base/error.h"
#include "launch/process_handle.h"

namespace hasten {
namespace {

// Waits in the helper process until a signal ends it.
[[noreturn]] void wait_for_a_signal(sigset_t mask) {
  prctl(PR_SET_DUMPABLE, 0);
  drop_inherited_handlers();
  // The launching thread may block these signals, as the threads of a notebook do.
  for (const int number : kTerminationSignals) sigdelset(&mask, number);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  while (true) pause();
}

}  // namespace

void drop_inherited_handlers() {
  for (const int number : kTerminationSignals) {
    if (signal(number, SIG_DFL) == SIG_IGN) signal(number, SIG_IGN);
  }
}

void throw_cannot_fork(int error) {
  throw IoError("process.fork",
                {.what = "forking a process",
                 .got = std::strerror(error),
                 .hint = "raise the limit of processes (ulimit -u, or pids.max of the control "
                         "group), or free memory"});
}

void GroupSignals::start() {
  // A signal that arrives before the handlers are removed has to wait.
  sigset_t blocked, before;
  sigemptyset(&blocked);
  for (const int number : kTerminationSignals) sigaddset(&blocked, number);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  helper_.emplace(ForkOptions{}, [&] { wait_for_a_signal(before); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (helper_->error() != 0) throw_cannot_fork(helper_->error());
  descriptor_ = Descriptor(open_process(helper_->number()));
}

std::optional<int> GroupSignals::take() {
  if (helper_->state() == ChildState::running) return std::nullopt;
  // If other code has waited for the helper, or SIGCHLD is ignored, the signal is unknown and is
  // assumed to be SIGINT.
  const auto status = helper_->reap();
  const int number = status ? WTERMSIG(*status) : SIGINT;
  start();
  // Another signal has killed the helper, for example the system's SIGKILL when memory is short.
  // That is not a request to end the ranks.
  if (std::find(kTerminationSignals.begin(), kTerminationSignals.end(), number) ==
      kTerminationSignals.end())
    return std::nullopt;
  return number;
}

}  // namespace hasten
