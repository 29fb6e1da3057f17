// File: rendezvous/mesh_sockets.h (internal)
// The sockets by which the ranks of a group are connected (mesh.h): of the kernel's local namespace
// on one machine, TCP between machines. All are non-blocking and closed by exec. Thread rule: any
// thread.
#pragma once

#include <memory>
#include <string>

#include "base/descriptor.h"
#include "rendezvous/sockets.h"

namespace hasten::rendezvous {

// Equal for two processes if a local socket can connect them: the same boot of the same machine,
// the same network and user namespaces, user and address. Empty if the system does not tell.
std::string this_machine(const std::string& address);

// Listens under a name that no file has. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_locally(const std::string& name);
// The socket; -1 with errno if nobody listens there, its queue is full, or another user listens.
int connect_locally(const std::string& name);

// Listens at any free port of an address of this machine. Throws IoError "rendezvous.socket".
std::unique_ptr<Descriptor> listen_at(const std::string& address);
// A socket whose connection may still be on its way; -1 with errno. `own`: this rank's address,
// whose interface leads to a link-local address of IPv6.
int begin_connection(const std::string& address, int port, const std::string& own = "");
// An address as other machines can use it: they have interfaces of their own.
std::string without_interface(const std::string& address);

// One connection of those that wait at a listener. A local one is taken only from a process of this
// process's user.
struct Accepted {
  int socket = -1;
  int error = 0;        // why there is none: EAGAIN: no connection waits; EPERM: another user's
  std::string address;  // of the other side; empty if it is local
};
Accepted accept_from_listener(int listener, bool is_local);

}  // namespace hasten::rendezvous
