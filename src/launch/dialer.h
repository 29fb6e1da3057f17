// File: launch/dialer.h (internal)
// Tries to connect to the server of a job, repeatedly and without blocking, until both sides of a
// connection have shown that they know the job's token.
//
//   Dialer dialer(endpoint, context, "agent");
//   poll dialer.file() for dialer.events(), at most dialer.longest_wait() milliseconds
//   if (auto connection = dialer.advance()) ...
//
// A server that closes a connection before it answers the handshake is busy; only a TLS alert means
// that the tokens differ. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/backoff.h"
#include "rendezvous/connection.h"
#include "rendezvous/dial.h"

namespace hasten {

class Dialer {
 public:
  // Why an attempt failed; `none`: for another reason, such as no answer.
  enum class Problem { none, unknown_host, nobody_listens, wrong_token };

  Dialer(Endpoint endpoint, const rendezvous::SecureContext& context, std::string greeting);

  int file() const;
  short events() const;
  int longest_wait() const;  // milliseconds
  // Returns the connection once there is one; the greeting has been sent on it.
  std::unique_ptr<rendezvous::Connection> advance();

  // Why the last failed attempt failed, as a text.
  const std::string& why() const { return why_; }
  // The kind of that failure.
  Problem problem() const { return problem_; }
  // This machine's address and interface on the way there, "10.0.0.2 (eth0)"; empty if unknown.
  std::string way() const;

 private:
  std::unique_ptr<rendezvous::Connection> shake_hands();
  void fail(std::string why, Problem problem);

  Endpoint endpoint_;
  const rendezvous::SecureContext& context_;
  std::string greeting_;
  rendezvous::Backoff backoff_;
  rendezvous::Clock::time_point until_;  // the end of the pause, or the handshake's deadline
  std::optional<rendezvous::Dial> dial_;
  std::unique_ptr<rendezvous::Connection> connection_;  // during the handshake
  std::optional<rendezvous::SocketAddress> address_;    // the last that was tried
  std::string why_;
  Problem problem_ = Problem::none;
};

}  // namespace hasten
