// File: rendezvous/dial.h (internal)
// One attempt to connect to an endpoint, without waiting: looks the name up, and tries its
// addresses one after the other until the deadline, which holds for all of them together.
//
//   Dial dial(endpoint, Clock::now() + 5s);
//   while (!dial.done()) { poll dial.file() for dial.events(), dial.longest_wait(); dial.advance();
//   } Attempted attempted = dial.take();           // the socket, or why there is none
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/lookup.h"

namespace hasten::rendezvous {

// The socket, or -1 and why not.
struct Attempted {
  int socket = -1;
  std::string why;
  bool unknown_host = false;
  bool refused = false;  // the machine is there, and nobody listens
};

class Dial {
 public:
  using Clock = std::chrono::steady_clock;
  // `for_addresses`: how long all addresses may take once the name is known, if that is sooner.
  Dial(const Endpoint& endpoint, Clock::time_point deadline,
       Clock::duration for_addresses = std::chrono::hours(1));
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;
  ~Dial();

  int file() const { return socket_ >= 0 ? socket_ : lookup_.file(); }
  short events() const;
  int longest_wait() const;  // milliseconds
  void advance();
  bool done() const { return done_; }
  Attempted take();
  // The address that was tried last, if the name is known.
  std::optional<SocketAddress> address() const;

 private:
  void begin();
  void try_next();
  void finish(Attempted result);

  Lookup lookup_;
  Clock::time_point deadline_, until_;  // for all, and for the address that is being tried
  Clock::duration for_addresses_;
  std::size_t next_ = 0;  // address
  int socket_ = -1;
  bool done_ = false;
  Attempted result_;
};

}  // namespace hasten::rendezvous
