// File: rendezvous/mesh_sockets.h (internal)
// The sockets between the ranks of a group (mesh.h): Unix sockets in the abstract namespace on one
// machine, TCP between machines. All are non-blocking and closed on exec. Thread rule: any thread.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {

// Returns a text that is equal in two processes if a local socket can connect them: they have the
// same boot id, network namespace, user namespace, user and address. The text is empty if the
// system does not provide these.
std::string local_socket_scope(const std::string& address);

// Listens under a name without a file. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_locally(const std::string& name);
// Returns the socket, or -1 with errno if nobody listens, the queue is full, or another user
// listens.
int connect_locally(const std::string& name);

// Listens on any free port of an address of this machine. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_at(const std::string& address);
// Returns a socket that may still be connecting, or -1 with errno. A link-local IPv6 address is
// reached through the interface in `own`, this rank's address.
int begin_connection(const std::string& address, int port, const std::string& own = "");
// Removes the interface ("%eth0"), because other machines have different interfaces.
std::string without_interface(const std::string& address);

// A connection taken from a listener's queue. Local ones are accepted only from this process's
// user.
struct AcceptedConnection {
  int socket = -1;
  // The errno if there is no socket. EAGAIN means that no connection waits. EPERM means that the
  // connection belongs to another user.
  int error = 0;
  std::string address;  // The other side's address; empty if local.
};
AcceptedConnection accept_from_listener(int listener, bool is_local);

}  // namespace hasten::rendezvous
