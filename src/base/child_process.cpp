#include "base/child_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hasten {
namespace {

// Calls _Fork, which glibc has since 2.34.
pid_t fork_without_handlers() {
  using Fork = pid_t (*)();
  const auto found = reinterpret_cast<Fork>(dlsym(RTLD_DEFAULT, "_Fork"));
  if (found != nullptr) return found();
  errno = ENOSYS;
  return -1;
}

}  // namespace

ChildProcess::ChildProcess(const ForkOptions& options, const std::function<void()>& run)
    : leads_group_(options.leads_group) {
  const pid_t parent = getpid();
  number_ = options.skips_handlers ? fork_without_handlers() : fork();
  if (number_ < 0) error_ = errno;
  if (number_ == 0) {
    if (leads_group_) setpgid(0, 0);
    if (options.signal_at_parent_end != 0) {
      prctl(PR_SET_PDEATHSIG, options.signal_at_parent_end);
      if (getppid() != parent) _exit(127);  // the parent ended in the meantime
    }
    run();
    _exit(127);
  }
  // Both processes make the group, so that it exists whichever runs first.
  if (number_ > 0 && leads_group_) setpgid(number_, number_);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : number_(std::exchange(other.number_, -1)),
      leads_group_(other.leads_group_),
      is_reaped_(other.is_reaped_),
      error_(other.error_) {}

ChildProcess::~ChildProcess() {
  if (!is_unreaped() || state() == ChildState::lost) return;
  if (leads_group_) {
    send_to_group(SIGKILL);
  } else {
    send(SIGKILL);
  }
  reap();
}

ChildState ChildProcess::state_after(Wait wait) const {
  const int options = WEXITED | WNOWAIT | (wait == Wait::no ? WNOHANG : 0);
  siginfo_t info{};
  int failed = -1;
  do {
    failed = waitid(P_PID, static_cast<id_t>(number_), &info, options);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) return ChildState::lost;
  return info.si_pid == number_ ? ChildState::ended : ChildState::running;
}

std::optional<int> ChildProcess::reap() {
  const ChildState state = await_end();
  is_reaped_ = true;
  int status = 0;
  if (state == ChildState::lost || waitpid(number_, &status, 0) < 0) return std::nullopt;
  return status;
}

void ChildProcess::send(int signal) const {
  if (is_unreaped()) kill(number_, signal);
}

void ChildProcess::send_to_group(int signal) const {
  if (is_unreaped()) kill(-number_, signal);
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::optional<ChildPipe> ChildPipe::open() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  return ChildPipe{Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace hasten
