#include "rendezvous/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

constexpr double kLookupSeconds = 10;  // seconds
constexpr int kListenQueue = 65535;    // The system's own limit is net.core.somaxconn.

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
using Interfaces = std::unique_ptr<ifaddrs, FreeInterfaces>;

// Returns the numeric address. An IPv4-mapped IPv6 address (::ffff:10.0.0.1) is written as IPv4.
std::string text_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string plain = text;
  return starts_with(plain, "::ffff:") ? plain.substr(7) : plain;
}

template <typename Name>
std::string address_by(int socket, Name name) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return text_of(reinterpret_cast<sockaddr*>(&address), size);
}

// Returns an IPv6 socket that accepts IPv4 too, or an IPv4 socket if IPv6 is unavailable or only
// loopback is wanted. Returns -1 with errno on failure.
int bound_socket(bool loopback_only, int port) {
  const auto try_family = [&](int family) {
    Descriptor owned(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int socket = owned.get();
    if (socket < 0) return -1;
    const int on = 1, off = 0;
    // With port 0 the system must choose a port that nobody uses, so the port may not be shared
    // yet.
    if (port != 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(static_cast<std::uint16_t>(port));
    ipv6.sin6_addr = in6addr_any;
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<std::uint16_t>(port));
    ipv4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
    if (family == AF_INET6) setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const int bound = family == AF_INET6
                          ? bind(socket, reinterpret_cast<sockaddr*>(&ipv6), sizeof ipv6)
                          : bind(socket, reinterpret_cast<sockaddr*>(&ipv4), sizeof ipv4);
    if (port == 0) setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bound == 0 ? owned.release() : -1;
  };
  int socket = loopback_only ? -1 : try_family(AF_INET6);
  if (socket < 0 && (loopback_only || errno != EADDRINUSE)) socket = try_family(AF_INET);
  return socket;
}

[[noreturn]] void throw_port_error(int port) {
  const int error = errno;
  throw IoError(error == EADDRINUSE ? "rendezvous.port-taken" : "rendezvous.socket",
                {.what = str("port ", port, " of this machine"),
                 .got = std::strerror(error),
                 .hint = error == EADDRINUSE ? "another job may use it: choose another port with "
                                               "--main_process_port, the same on every machine"
                                             : ""});
}

// Takes a name in the kernel's list of local sockets, which frees it when the process ends.
int bind_port_name(int port) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = str("hasten port ", port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const bool bound = bind(socket.get(), reinterpret_cast<sockaddr*>(&name), size) == 0;
  return bound ? socket.release() : -1;
}

// Returns the IPv4 address of an interface that is up and not loopback.
std::optional<std::string> first_outside_address() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const Interfaces list(first);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    return text_of(each->ifa_addr, sizeof(sockaddr_in));
  }
  return std::nullopt;
}

}  // namespace

int listen_on(bool loopback_only, int port) {
  Descriptor socket(bound_socket(loopback_only, port));
  if (socket.get() < 0 || listen(socket.get(), kListenQueue) != 0) throw_port_error(port);
  fcntl(socket.get(), F_SETFL, O_NONBLOCK);
  return socket.release();
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string local_address(int socket) { return address_by(socket, getsockname); }
std::string peer_address(int socket) { return address_by(socket, getpeername); }

bool is_loopback(std::string_view address) {
  return address == "localhost" || address == "::1" || starts_with(address, "127.");
}

ConnectResult connect_to(const Endpoint& endpoint, double seconds) {
  ConnectAttempt attempt(endpoint, ConnectAttempt::Clock::now() +
                                       std::chrono::duration_cast<ConnectAttempt::Clock::duration>(
                                           std::chrono::duration<double>(seconds)));
  while (!attempt.done()) {
    pollfd file{.fd = attempt.descriptor(), .events = attempt.events(), .revents = 0};
    poll(&file, 1, attempt.longest_wait());
    attempt.advance();
  }
  return attempt.take();
}

std::string address_on_route_to(const SocketAddress& address) {
  std::string own;
  const int socket = ::socket(address.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return own;
  if (connect(socket, address.get(), address.size) == 0) own = local_address(socket);
  close(socket);
  return is_loopback(own) ? first_outside_address().value_or(own) : own;
}

std::string address_on_route_to(const Endpoint& endpoint) {
  for (const SocketAddress& address : look_up(endpoint, kLookupSeconds).addresses) {
    const std::string own = address_on_route_to(address);
    if (!own.empty()) return own;
  }
  return "";
}

bool is_this_machine(const LookupResult& host) {
  return std::any_of(host.addresses.begin(), host.addresses.end(), [](const SocketAddress& each) {
    const std::string address = text_of(each.get(), each.size);
    return is_loopback(address) || !interface_of(address).empty();
  });
}

std::string address_of_interface(std::string_view name) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  const Interfaces list(first);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
      const bool is_up = (each->ifa_flags & IFF_UP) != 0;
      if (!is_up || name != each->ifa_name || each->ifa_addr == nullptr) continue;
      if (each->ifa_addr->sa_family != family) continue;
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (const std::string address = text_of(each->ifa_addr, size); !address.empty())
        return address;
    }
  }
  return "";
}

std::string interface_of(std::string_view address) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  const Interfaces list(first);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (text_of(each->ifa_addr, size) == address) return each->ifa_name;
  }
  return "";
}

ReservedPort::ReservedPort(bool loopback_only, int port)
    : socket_(bound_socket(loopback_only, port)) {
  if (socket_.get() < 0) throw_port_error(port);
  // Two sockets that allow reuse can bind the same port, but only one process can take the name.
  if (port != 0) {
    name_socket_ = Descriptor(bind_port_name(port));
    if (name_socket_.get() < 0) throw_port_error(port);
  }
  number_ = port_of(socket_.get());
}

}  // namespace hasten::rendezvous
