// File: rendezvous/connect_attempt.h (internal)
// One attempt to connect to an endpoint without blocking. It looks up the name and tries its
// addresses in turn until the deadline, which covers all of them.
//
//   ConnectAttempt attempt(endpoint, ConnectAttempt::Clock::now() + 5s);
//   while (!attempt.done()) {
//     wait(attempt.descriptor(), attempt.events(), attempt.longest_wait());
//     attempt.advance();
//   }
//   const ConnectResult result = attempt.take();  // the socket, or why there is none
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/lookup.h"

namespace hasten::rendezvous {

// The connected socket, or -1 and the reason.
struct ConnectResult {
  int socket = -1;
  std::string error;
  bool unknown_host = false;
  bool refused = false;  // The machine answers, but nothing listens.
};

class ConnectAttempt {
 public:
  using Clock = std::chrono::steady_clock;
  // `address_timeout` limits the time for all addresses once the name is known, unless `deadline`
  // is sooner.
  ConnectAttempt(const Endpoint& endpoint, Clock::time_point deadline,
                 Clock::duration address_timeout = std::chrono::hours(1));
  ConnectAttempt(const ConnectAttempt&) = delete;
  ConnectAttempt& operator=(const ConnectAttempt&) = delete;
  ~ConnectAttempt();

  int descriptor() const { return socket_ >= 0 ? socket_ : lookup_.descriptor(); }
  short events() const;
  int longest_wait() const;  // Milliseconds.
  void advance();
  bool done() const { return done_; }
  ConnectResult take();
  // The address that was tried last, if the name is known.
  std::optional<SocketAddress> address() const;

 private:
  void begin();
  void try_next();
  void finish(ConnectResult result);

  Lookup lookup_;
  // The deadlines of the whole attempt and of the current address.
  Clock::time_point deadline_, until_;
  Clock::duration address_timeout_;
  std::size_t next_ = 0;  // The index of the next address.
  int socket_ = -1;
  bool done_ = false;
  ConnectResult result_;
};

}  // namespace hasten::rendezvous
