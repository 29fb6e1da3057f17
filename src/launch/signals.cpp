#include "launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace hasten {
namespace {

bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t set_of(int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  return one;
}

void set(int number, void (*handler)(int), struct sigaction* before) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(number, &action, before);
}

}  // namespace

Signals::Signals() {
  set(SIGCHLD, SIG_DFL, &child_before_);
  set(SIGPIPE, SIG_IGN, &pipe_before_);
  set(SIGXFSZ, SIG_IGN, &size_before_);
  sigemptyset(&taken_);
  sigaddset(&taken_, SIGCHLD);
  // A blocked signal is queued even if it is ignored, so ignored signals are not blocked.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    if (!is_ignored(number)) sigaddset(&taken_, number);
  }
  sigprocmask(SIG_BLOCK, &taken_, &mask_before_);
  file_ = signalfd(-1, &taken_, SFD_NONBLOCK | SFD_CLOEXEC);
}

Signals::~Signals() {
  // A signal that is still queued would end this process before it can report why it ends.
  while (next()) {
  }
  close(file_);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigaction(SIGXFSZ, &size_before_, nullptr);
}

std::optional<int> Signals::next() {
  signalfd_siginfo info{};
  if (read(file_, &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool Signals::wait_for(int number, std::chrono::milliseconds limit) const {
  if (sigismember(&taken_, number) != 1) return false;
  const sigset_t wanted = set_of(number);
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left = std::max(end - std::chrono::steady_clock::now(),
                               std::chrono::steady_clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec rest{
        .tv_sec = static_cast<time_t>(seconds.count()),
        .tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
    if (sigtimedwait(&wanted, nullptr, &rest) == number) return true;
    if (errno != EINTR) return false;
  }
}

void Signals::suspend() const {
  const sigset_t stop = set_of(SIGTSTP);
  struct sigaction before {};
  set(SIGTSTP, SIG_DFL, &before);
  raise(SIGTSTP);                            // it is blocked
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // the process stops here
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  sigaction(SIGTSTP, &before, nullptr);
}

Signals::SuspensionScope::SuspensionScope(Signals& signals)
    : signals_(signals), takes_(!is_ignored(SIGTSTP)) {
  if (!takes_) return;
  sigset_t all = signals_.taken_;
  sigaddset(&all, SIGTSTP);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  signalfd(signals_.file_, &all, 0);  // changes the signals of the file
}

Signals::SuspensionScope::~SuspensionScope() {
  if (!takes_) return;
  signalfd(signals_.file_, &signals_.taken_, 0);
  const sigset_t stop = set_of(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
}

void Signals::restore_in_rank() const {
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigaction(SIGXFSZ, &size_before_, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace hasten
