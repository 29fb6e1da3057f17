#include "rendezvous/connect_attempt.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/poll_timeout.h"

namespace hasten::rendezvous {

ConnectAttempt::ConnectAttempt(const Endpoint& endpoint, Clock::time_point deadline,
                               Clock::duration address_timeout)
    : lookup_(endpoint), deadline_(deadline), until_(deadline), address_timeout_(address_timeout) {
  advance();
}

ConnectAttempt::~ConnectAttempt() {
  if (socket_ >= 0) close(socket_);
  if (result_.socket >= 0) close(result_.socket);
}

short ConnectAttempt::events() const { return socket_ >= 0 ? POLLOUT : POLLIN; }

int ConnectAttempt::longest_wait() const { return poll_timeout(until_); }

std::optional<SocketAddress> ConnectAttempt::address() const {
  if (!lookup_.done() || next_ == 0) return std::nullopt;
  return lookup_.result().addresses[next_ - 1];
}

void ConnectAttempt::finish(ConnectResult result) {
  result_ = std::move(result);
  done_ = true;
}

ConnectResult ConnectAttempt::take() { return std::exchange(result_, {}); }

void ConnectAttempt::advance() {
  if (done_) return;
  if (!lookup_.done()) {
    if (Clock::now() >= deadline_) finish({.error = "the name server does not answer"});
    return;
  }
  if (socket_ < 0) return begin();
  pollfd file{.fd = socket_, .events = POLLOUT, .revents = 0};
  int problem = ETIMEDOUT;
  if (poll(&file, 1, 0) == 1) {
    socklen_t size = sizeof problem;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &problem, &size);
  } else if (Clock::now() < until_) {
    return;
  }
  if (problem == 0) return finish({.socket = std::exchange(socket_, -1)});
  close(std::exchange(socket_, -1));
  result_ = {.error = std::strerror(problem), .refused = problem == ECONNREFUSED};
  try_next();
}

void ConnectAttempt::begin() {
  const LookupResult& found = lookup_.result();
  if (found.addresses.empty())
    return finish({.error = found.error, .unknown_host = found.unknown_host});
  deadline_ = std::min(deadline_, Clock::now() + address_timeout_);
  try_next();
}

// Gives each address an equal share of the remaining time.
void ConnectAttempt::try_next() {
  const std::vector<SocketAddress>& addresses = lookup_.result().addresses;
  while (next_ < addresses.size() && Clock::now() < deadline_) {
    const auto now = Clock::now();
    until_ = now + (deadline_ - now) / static_cast<std::int64_t>(addresses.size() - next_);
    const SocketAddress& address = addresses[next_++];
    socket_ = ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ >= 0) {
      const int on = 1;
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(socket_, address.get(), address.size) == 0)
        return finish({.socket = std::exchange(socket_, -1)});
      if (errno == EINPROGRESS) return;
    }
    const int problem = errno;
    if (socket_ >= 0) close(std::exchange(socket_, -1));
    result_ = {.error = std::strerror(problem), .refused = problem == ECONNREFUSED};
  }
  if (result_.error.empty()) result_.error = std::strerror(ETIMEDOUT);
  done_ = true;
}

}  // namespace hasten::rendezvous
