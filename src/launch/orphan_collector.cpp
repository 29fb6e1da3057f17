#include "launch/orphan_collector.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace hasten {
namespace {

bool has_children() {
  siginfo_t info{};
  const int any = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
  return waitid(P_ALL, 0, &info, any) == 0 || errno != ECHILD;
}

}  // namespace

OrphanCollector::OrphanCollector() : is_first_(getpid() == 1) {
  if (is_first_) {
    collects_ = true;
    return;
  }
  if (has_children() || prctl(PR_GET_CHILD_SUBREAPER, &before_) != 0) return;
  collects_ = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

OrphanCollector::~OrphanCollector() {
  if (collects_ && !is_first_) prctl(PR_SET_CHILD_SUBREAPER, before_);
}

void OrphanCollector::reap(const std::function<bool(pid_t)>& is_awaited) const {
  if (!collects_) return;
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    // A rank has just ended. The caller calls this again because of the rank's SIGCHLD.
    if (is_awaited(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, 0);
  }
}

}  // namespace hasten
