// File: rendezvous/mesh_sockets.h (internal)
// The sockets between the ranks of a group (mesh.h): Unix sockets in the abstract namespace on one
// machine, TCP between machines. All are non-blocking and closed on exec. Thread rule: any thread.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {

// Returns the same text in two processes if a local socket can connect them: they share the boot of
// the machine, the network and user namespaces, the user and the address. Empty if the system does
// not provide these.
std::string local_socket_scope(const std::string& address);

// Listens under a name without a file. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_locally(const std::string& name);
// Returns the socket; -1 with errno if nobody listens, the queue is full, or another user listens.
int connect_locally(const std::string& name);

// Listens on any free port of an address of this machine. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_at(const std::string& address);
// Returns a socket that may still be connecting; -1 with errno. A link-local IPv6 address is
// reached through the interface in `own`, this rank's address.
int begin_connection(const std::string& address, int port, const std::string& own = "");
// Removes the interface ("%eth0"), because other machines have other ones.
std::string without_interface(const std::string& address);

// A connection taken from a listener's queue. Local ones are accepted only from this process's
// user.
struct Accepted {
  int socket = -1;
  // The errno, if there is no socket. EAGAIN: no connection waits. EPERM: it is another user's.
  int error = 0;
  std::string address;  // The other side's; empty if local.
};
Accepted accept_from_listener(int listener, bool is_local);

}  // namespace hasten::rendezvous
