#include "launch/exit_order.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "launch/process_handle.h"

namespace hasten {

ExitOrder::ExitOrder() : events_(epoll_create1(EPOLL_CLOEXEC)) {}

ExitOrder::~ExitOrder() {
  for (const int process : processes_) close(process);
  if (events_ >= 0) close(events_);
}

void ExitOrder::add(std::size_t index, pid_t process) {
  const int file = open_process(process);
  if (file < 0) return;
  processes_.push_back(file);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = index;
  epoll_ctl(events_, EPOLL_CTL_ADD, file, &event);
}

// The kernel lists files in the order in which they became readable.
std::vector<std::size_t> ExitOrder::next() {
  std::vector<std::size_t> ended;
  epoll_event events[64];
  int count = 0;
  while ((count = epoll_wait(events_, events, 64, 0)) > 0) {
    for (int i = 0; i < count; ++i) ended.push_back(static_cast<std::size_t>(events[i].data.u64));
  }
  return ended;
}

}  // namespace hasten
