#include "rendezvous/lookup.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/poll_timeout.h"
#include "base/start_thread.h"

namespace hasten::rendezvous {
namespace {

// With `numeric_only` no name server is asked.
LookupResult system_lookup(const Endpoint& endpoint, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (numeric_only) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* first = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &first);
  if (error != 0) return {.error = gai_strerror(error), .unknown_host = error == EAI_NONAME};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(first, freeaddrinfo);
  LookupResult found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    SocketAddress& address = found.addresses.emplace_back();
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
  }
  return found;
}

}  // namespace

struct Lookup::Shared {
  Shared() : file(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { close(file); }

  void finish(LookupResult looked_up) {
    result = std::move(looked_up);
    done.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(file, &one, sizeof one);
  }

  int file;
  LookupResult result;
  std::atomic<bool> done = false;
};

Lookup::Lookup(const Endpoint& endpoint) : shared_(std::make_shared<Shared>()) {
  LookupResult numbers = system_lookup(endpoint, /*numeric_only=*/true);
  if (!numbers.addresses.empty()) {
    shared_->finish(std::move(numbers));
    return;
  }
  std::thread thread = start_thread([shared = shared_, endpoint] {
    shared->finish(system_lookup(endpoint, /*numeric_only=*/false));
  });
  if (thread.joinable()) {
    thread.detach();
  } else {
    // A later lookup may succeed.
    shared_->finish({.error = "the system cannot start another thread"});
  }
}

Lookup::~Lookup() = default;

int Lookup::descriptor() const { return shared_->file; }
bool Lookup::done() const { return shared_->done.load(std::memory_order_acquire); }
const LookupResult& Lookup::result() const { return shared_->result; }

LookupResult look_up(const Endpoint& endpoint, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  const Lookup lookup(endpoint);
  while (!lookup.done()) {
    if (Clock::now() >= deadline) return {.error = "the name server does not answer"};
    pollfd file{.fd = lookup.descriptor(), .events = POLLIN, .revents = 0};
    poll(&file, 1, poll_timeout(deadline));
  }
  return lookup.result();
}

}  // namespace hasten::rendezvous
