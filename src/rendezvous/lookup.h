// File: rendezvous/lookup.h (internal)
// Looks up a host's addresses in a thread of its own, because the system's call cannot be
// interrupted and takes half a minute with a name server that does not answer.
//
//   Lookup lookup({.host = "node1", .port = 29500});
//   poll lookup.file() for POLLIN, beside other files
//   if (lookup.done()) for (const SocketAddress& address : lookup.found().addresses) ...
//
// An address in numbers is known at once, without a thread. A lookup may be given up at any time:
// its thread then ends by itself. Where the system has no thread left nothing is found, which a
// later lookup may change. Throws nothing. Thread rule: one thread at a time.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "hasten/config/endpoint.h"

namespace hasten::rendezvous {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

struct Found {
  std::vector<SocketAddress> addresses;
  std::string why;            // there are none
  bool unknown_host = false;  // a name server has said that there is no such name
};

class Lookup {
 public:
  explicit Lookup(const Endpoint& endpoint);
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup();

  int file() const;
  bool done() const;
  // Of a lookup that is done.
  const Found& found() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // also of the thread, which may live longer
};

// Waits for it. After `seconds` nothing is found.
Found look_up(const Endpoint& endpoint, double seconds);

}  // namespace hasten::rendezvous
