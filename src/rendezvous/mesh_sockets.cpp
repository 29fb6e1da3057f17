#include "rendezvous/mesh_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "base/process_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

// The maximum number of connections that wait to be accepted; the kernel has a limit too.
constexpr int kGroupListenQueue = 4096;

struct LocalName {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit LocalName(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);  // A leading zero means no file.
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

[[noreturn]] void throw_listen_error(const std::string& where) {
  throw IoError("rendezvous.socket", {.what = "listening for the ranks of a group " + where,
                                      .got = std::strerror(errno)});
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// The address is numeric, so no name server is asked.
std::unique_ptr<addrinfo, FreeAddresses> parse_numeric_address(const std::string& address,
                                                               int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    found = nullptr;
  return std::unique_ptr<addrinfo, FreeAddresses>(found);
}

bool peer_is_this_user(int socket) {
  ucred other{};
  socklen_t size = sizeof other;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

}  // namespace

std::string local_socket_scope(const std::string& address) {
  const std::string boot = boot_id();
  struct stat network {
  }, users{};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return "";
  // A user namespace shows all users that it does not know as one user.
  std::ifstream overflow("/proc/sys/kernel/overflowuid");
  uid_t nobody = 0;
  if (stat("/proc/self/ns/user", &users) != 0 || !(overflow >> nobody) || geteuid() == nobody)
    return "";
  return str(boot, " ", network.st_ino, " ", users.st_ino, " ", geteuid(), " ", address);
}

std::unique_ptr<Descriptor> listen_locally(const std::string& name) {
  auto listener =
      std::make_unique<Descriptor>(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const LocalName local(name);
  if (listener->get() < 0 || bind(listener->get(), local.get(), local.size) != 0 ||
      listen(listener->get(), kGroupListenQueue) != 0)
    throw_listen_error("on this machine");
  return listener;
}

int connect_locally(const std::string& name) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return -1;
  const LocalName local(name);
  if (connect(socket.get(), local.get(), local.size) != 0) return -1;
  // Anybody may take the name of a rank that has ended.
  if (peer_is_this_user(socket.get())) return socket.release();
  errno = EPERM;
  return -1;
}

std::unique_ptr<Descriptor> listen_at(const std::string& address) {
  const auto at = parse_numeric_address(address, 0);
  if (!at) {
    throw IoError("rendezvous.socket",
                  {.what = "the address on which to listen for the ranks of a group",
                   .got = "'" + address + "'",
                   .expected = "a numeric address of this machine"});
  }
  auto listener = std::make_unique<Descriptor>(
      socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener->get() < 0 || bind(listener->get(), at->ai_addr, at->ai_addrlen) != 0 ||
      listen(listener->get(), kGroupListenQueue) != 0)
    throw_listen_error("at " + address);
  return listener;
}

std::string without_interface(const std::string& address) {
  return address.substr(0, address.find('%'));
}

int begin_connection(const std::string& address, int port, const std::string& own) {
  const std::size_t interface = own.find('%');
  const bool is_of_link = interface != own.npos && starts_with(address, "fe80:");
  const auto at =
      parse_numeric_address(is_of_link ? address + own.substr(interface) : address, port);
  errno = EADDRNOTAVAIL;
  if (!at) return -1;
  Descriptor socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return -1;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const bool begun =
      connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 || errno == EINPROGRESS;
  return begun ? socket.release() : -1;
}

AcceptedConnection accept_from_listener(int listener, bool is_local) {
  const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return {.error = errno};
  if (!is_local) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return {.socket = socket, .address = peer_address(socket)};
  }
  if (peer_is_this_user(socket)) return {.socket = socket};
  close(socket);
  return {.error = EPERM};
}

}  // namespace hasten::rendezvous
