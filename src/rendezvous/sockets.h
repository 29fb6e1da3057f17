// File: rendezvous/sockets.h (internal)
// Listening and connecting by name, IPv4 and IPv6. Throws IoError "rendezvous.port-taken",
// "rendezvous.host", "rendezvous.socket". Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hasten/config/endpoint.h"
#include "rendezvous/dial.h"
#include "rendezvous/lookup.h"

namespace hasten::rendezvous {

// Every address of the machine, or loopback's alone; port 0: any. Gives the socket.
int listen_on(bool loopback_only, int port);
int port_of(int socket);
// One of the addresses that a connected socket joins, as numbers.
std::string local_address(int socket);
std::string peer_address(int socket);
bool is_loopback(std::string_view address);

// Waits for a connection, at most `seconds` for the name and all of its addresses together.
Attempted connect_to(const Endpoint& endpoint, double seconds);

// This machine's address on the way to another, by the system's routes; nothing is sent. If the
// way is loopback, it is the address of an interface that is up, since others come from outside.
std::string address_towards(const SocketAddress& address);
// The same by name; empty if the name is unknown, or is not found within some seconds.
std::string address_towards(const Endpoint& endpoint);

// Whether one of this machine's interfaces has one of the addresses.
bool is_this_machine(const Found& host);
// The interface that has the address: "eth0"; empty: none.
std::string interface_of(std::string_view address);
// The first address of an interface that is up, IPv4 before IPv6; empty if it has none.
std::string address_of_interface(std::string_view name);

// A free port of this machine that no other program is given while it lives, and that a process
// which allows reuse (TCPStore does) may listen on.
class ReservedPort {
 public:
  explicit ReservedPort(bool loopback_only, int port = 0);  // 0: any
  ReservedPort(ReservedPort&& other) noexcept;
  ReservedPort& operator=(ReservedPort&& other) noexcept;
  ~ReservedPort();
  int number() const { return number_; }

 private:
  int socket_ = -1;
  int mark_ = -1;
  int number_ = 0;
};

}  // namespace hasten::rendezvous
