// File: rendezvous/sockets.h (internal)
// Listens and connects by name, over IPv4 and IPv6. Throws IoError "rendezvous.port-taken" and
// "rendezvous.socket". Thread rule: any thread.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/internal_api.h"
#include "machine/endpoint.h"
#include "rendezvous/connect_attempt.h"
#include "rendezvous/lookup.h"

namespace hasten::rendezvous {

// Returns a socket that listens on every address of the machine, or on loopback only. Port 0 means
// any free port.
int listen_on(bool loopback_only, int port);
int port_of(int socket);
// Returns this side's numeric address of a connected socket, or an empty text if it is unknown.
std::string local_address(int socket);
// Returns the other side's numeric address, or an empty text if it is unknown.
std::string peer_address(int socket);
HASTEN_INTERNAL_API bool is_loopback(std::string_view address);
// Returns whether a failed read or write of a socket may succeed later: the socket is empty or
// full, or the system lacks memory for it.
inline bool is_retryable_socket_error(int error) {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

// Blocks for at most `seconds`, for the name and all of its addresses together.
ConnectResult connect_to(const Endpoint& endpoint, double seconds);

// Returns this machine's address on the route to another machine. Sends nothing. If the address is
// loopback, returns the IPv4 address of an interface that is up, because other machines cannot use
// loopback.
std::string address_on_route_to(const SocketAddress& address);
// Does the same for a host name. Returns an empty text if the name is unknown or not found within
// 10 seconds.
HASTEN_INTERNAL_API std::string address_on_route_to(const Endpoint& endpoint);

// Returns whether one of the addresses is loopback or belongs to an interface of this machine.
bool is_this_machine(const LookupResult& host);
// Returns the interface that has the address, such as "eth0", or an empty text if there is none.
std::string interface_of(std::string_view address);
// Returns the first address of an interface that is up, IPv4 before IPv6, or an empty text if there
// is none.
HASTEN_INTERNAL_API std::string address_of_interface(std::string_view name);

// A free port that the system gives to no other program during the lifetime of this object. A
// process that sets SO_REUSEADDR (as TCPStore does) may listen on it.
class HASTEN_INTERNAL_API ReservedPort {
 public:
  explicit ReservedPort(bool loopback_only, int port = 0);  // 0 means any free port.
  int number() const { return number_; }

 private:
  Descriptor socket_, name_socket_;
  int number_ = 0;
};

}  // namespace hasten::rendezvous
