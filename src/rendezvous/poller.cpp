#include "rendezvous/poller.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "hasten/base/error.h"

namespace hasten::rendezvous {
namespace {

constexpr std::size_t kMaxEvents = 256;

// poll and epoll have the same values, which epoll_ctl(2) does not guarantee.
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT);

}  // namespace

Poller::Poller() : file_(epoll_create1(EPOLL_CLOEXEC)) {
  if (file_.get() >= 0) return;
  throw IoError("rendezvous.socket",
                {.what = "waiting for connections", .got = std::strerror(errno)});
}

bool Poller::control(int operation, int file, std::uint64_t id, short events) {
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(events);
  event.data.u64 = id;
  return epoll_ctl(file_.get(), operation, file, &event) == 0;
}

bool Poller::watch(int file, std::uint64_t id, short events) {
  return control(EPOLL_CTL_ADD, file, id, events);
}
bool Poller::change(int file, std::uint64_t id, short events) {
  return control(EPOLL_CTL_MOD, file, id, events);
}
void Poller::remove(int file) { control(EPOLL_CTL_DEL, file, 0, 0); }

std::vector<std::uint64_t> Poller::wait(int milliseconds) {
  std::array<epoll_event, kMaxEvents> events;
  const int count =
      epoll_wait(file_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < std::max(count, 0); ++i) {
    // Copies the id, because the member is not aligned.
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace hasten::rendezvous
