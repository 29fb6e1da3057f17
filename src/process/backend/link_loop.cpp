#include "process/backend/link_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/start_thread.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

bool watch(int poll, int operation, Link* link, int file, bool wants_to_write) {
  epoll_event event{};
  event.events = EPOLLIN | (wants_to_write ? EPOLLOUT : 0U);
  event.data.ptr = link;
  return epoll_ctl(poll, operation, file, &event) == 0;
}

[[noreturn]] void throw_poll_error() {
  throw IoError("rendezvous.socket", {.what = "polling the connections to the other ranks",
                                      .got = std::strerror(errno)});
}

}  // namespace

LinkLoop::LinkLoop()
    : process_(getpid()),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (poll_.get() < 0 || stop_.get() < 0 ||
      !watch(poll_.get(), EPOLL_CTL_ADD, nullptr, stop_.get(), false))
    throw_poll_error();
}

bool LinkLoop::is_same_process() const { return getpid() == process_; }

void LinkLoop::start(std::vector<Link*> links) {
  for (Link* const link : links) {
    if (!watch(poll_.get(), EPOLL_CTL_ADD, link, link->descriptor(), false)) throw_poll_error();
  }
  thread_ = start_required_thread("io.thread", "reads the messages of the other ranks",
                                  [this, links = std::move(links)] { run(links); });
  pthread_setname_np(thread_.native_handle(), "hasten-links");
}

LinkLoop::~LinkLoop() {
  if (!thread_.joinable()) return;
  if (!is_same_process()) {
    thread_.detach();
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void LinkLoop::set_write_interest(Link& link, bool wants_to_write) {
  if (is_same_process())
    watch(poll_.get(), EPOLL_CTL_MOD, &link, link.descriptor(), wants_to_write);
}

void LinkLoop::drop(Link& link) {
  if (is_same_process()) watch(poll_.get(), EPOLL_CTL_DEL, &link, link.descriptor(), false);
}

void LinkLoop::run(const std::vector<Link*>& links) {
  // TLS may have read bytes beyond the handshake, for which the socket does not become readable.
  for (Link* const link : links) link->advance();
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      auto* const link = static_cast<Link*>(events[static_cast<std::size_t>(i)].data.ptr);
      if (link == nullptr) return;
      link->advance();
    }
  }
}

}  // namespace hasten
