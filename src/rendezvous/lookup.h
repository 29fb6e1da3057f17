// File: rendezvous/lookup.h (internal)
// Looks up a host's addresses in a thread, because the system's call cannot be interrupted and
// takes half a minute if the name server does not answer.
//
//   Lookup lookup({.host = "node1", .port = 29500});
//   wait(lookup.descriptor(), POLLIN);
//   if (lookup.done()) connect_to_one_of(lookup.result().addresses);
//
// A numeric address needs no thread. A lookup may be destroyed at any time; its thread ends on its
// own. If the system cannot start a thread, the lookup finds nothing; a later lookup may succeed.
// Throws nothing. Thread rule: one thread at a time.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "machine/endpoint.h"

namespace hasten::rendezvous {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

struct LookupResult {
  std::vector<SocketAddress> addresses;
  std::string error;          // The reason, if there are no addresses.
  bool unknown_host = false;  // A name server reports that the name does not exist.
};

class Lookup {
 public:
  explicit Lookup(const Endpoint& endpoint);
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup();

  int descriptor() const;
  bool done() const;
  // Requires done().
  const LookupResult& result() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // Shared with the thread, which may live longer.
};

// Blocks until the lookup is done. If `seconds` pass before that, the result has no addresses.
LookupResult look_up(const Endpoint& endpoint, double seconds);

}  // namespace hasten::rendezvous
