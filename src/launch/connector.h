// File: launch/connector.h (internal)
// Tries to connect to the server of a job, repeatedly and without blocking, until both sides of a
// connection have shown that they know the job's token.
//
//   Connector connector(endpoint, context, "agent");
//   poll connector.descriptor() for connector.events(), for at most connector.longest_wait() ms
//   if (auto connection = connector.advance()) ...
//
// A server that closes a connection before it answers the handshake is busy; only a TLS alert means
// that the tokens differ. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/backoff.h"
#include "rendezvous/connect_attempt.h"
#include "rendezvous/connection.h"

namespace hasten {

class Connector {
 public:
  // Why an attempt failed. `none` means another reason, such as no answer.
  enum class Failure { none, unknown_host, connection_refused, wrong_token };

  Connector(Endpoint endpoint, const rendezvous::SecureContext& context, std::string greeting);

  int descriptor() const;
  short events() const;
  int longest_wait() const;  // milliseconds
  // Returns the connection once there is one, after sending the greeting on it.
  std::unique_ptr<rendezvous::Connection> advance();

  // Why the last failed attempt failed, as a text.
  const std::string& failure_text() const { return failure_text_; }
  // The kind of that failure.
  Failure failure() const { return failure_; }
  // This machine's address and interface for the connection, "10.0.0.2 (eth0)"; empty if unknown.
  std::string local_address_text() const;

 private:
  std::unique_ptr<rendezvous::Connection> continue_handshake();
  void fail(std::string why, Failure failure);

  Endpoint endpoint_;
  const rendezvous::SecureContext& context_;
  std::string greeting_;
  rendezvous::Backoff backoff_;
  rendezvous::Clock::time_point wait_until_;  // the end of the pause, or the handshake's deadline
  std::optional<rendezvous::ConnectAttempt> attempt_;
  std::unique_ptr<rendezvous::Connection> connection_;  // during the handshake
  std::optional<rendezvous::SocketAddress> address_;    // the last one that was tried
  std::string failure_text_;
  Failure failure_ = Failure::none;
};

}  // namespace hasten
