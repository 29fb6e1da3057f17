// File: rendezvous/connection.h (internal)
// Sends and receives messages over one TLS connection without blocking. The owner polls the socket
// and calls advance() when it is ready.
//
//   Connection connection(connect_to({.host = "10.0.0.1", .port = 29500}, 5).socket, context);
//   connection.send(message);
//   wait(connection.descriptor(), connection.events());
//   connection.advance();
//   while (auto message = connection.next()) handle(*message);
//
// Thread rule: one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/internal_api.h"
#include "base/running_clock.h"
#include "rendezvous/secure_context.h"

struct ssl_st;  // OpenSSL's SSL and BIO
struct bio_st;

namespace hasten::rendezvous {

using Clock = RunningClock::Clock;

class HASTEN_INTERNAL_API Connection {
 public:
  // Takes ownership of the connected socket.
  Connection(int socket, const SecureContext& context);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  int descriptor() const { return socket_; }
  short events() const;  // The poll(2) events to wait for.
  // Reads and writes without blocking. Reads at most 1 MiB, so that no peer can occupy the thread.
  void advance();
  bool is_open() const { return close_reason_.empty(); }
  // True once both sides have proved that they know the token.
  bool is_authenticated() const { return is_authenticated_; }
  // True on a server that has answered the client's first message. Only a client that knows the
  // token can create that message, but until is_authenticated() it may be a replay of another
  // client's message.
  bool received_valid_message() const { return received_valid_message_; }
  const std::string& close_reason() const { return close_reason_; }
  // True if the connection was closed because the other side has a different token, which it
  // reports by a TLS alert.
  bool was_rejected() const { return was_rejected_; }
  // True if the other side has closed the connection properly, as the kernel does when a process
  // ends.
  bool closed_by_peer() const { return closed_by_peer_; }

  // Throws DataError "rendezvous.message" if the message is longer than kMaxMessageBytes; the
  // connection stays usable.
  void send(std::string_view message);
  bool has_unsent() const { return !outgoing_.empty(); }
  bool has_message() const { return !messages_.empty(); }
  std::optional<std::string> next();

  // Blocks until the next message. Throws IoError "rendezvous.lost" and "rendezvous.time"; `what`
  // names the message in errors. The time during which this process is suspended does not count
  // towards the deadline. Calls with one deadline share a clock.
  std::string receive(RunningClock& clock, Clock::time_point deadline, std::string_view what);
  std::string receive(Clock::time_point deadline, std::string_view what);
  // Blocks until everything is sent, the connection has closed, or the deadline has passed.
  void flush(RunningClock& clock, Clock::time_point deadline);
  void flush(Clock::time_point deadline);

 private:
  // Waits until the socket is ready, but not longer than until the deadline.
  void wait(RunningClock& clock, Clock::time_point deadline) const;
  void mark_closed(std::string why);
  void continue_handshake();
  void read_socket();
  void write_socket();
  void read_messages();
  void collect_encrypted();
  void encrypt(std::string_view bytes);

  struct Free {
    void operator()(ssl_st* tls) const;
  };
  int socket_;
  Side side_;
  std::unique_ptr<ssl_st, Free> tls_;
  bio_st* from_socket_;  // tls_ owns both.
  bio_st* to_socket_;
  bool is_authenticated_ = false, received_valid_message_ = false, was_rejected_ = false,
       closed_by_peer_ = false;
  std::string close_reason_;
  std::string outgoing_;                    // Encrypted bytes for the socket.
  std::string incoming_;                    // Decrypted bytes of an incomplete message.
  std::string queued_until_authenticated_;  // Messages to send after the handshake.
  std::deque<std::string> messages_;
};

}  // namespace hasten::rendezvous
