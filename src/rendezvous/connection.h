// File: rendezvous/connection.h (internal)
// Messages over one TLS connection, without waiting: the owner polls the file and says when it is
// ready.
//
//   Connection connection(connect_to("10.0.0.1", 29500), context);
//   connection.send(message);
//   poll connection.file() for connection.events(), then connection.advance()
//   while (auto message = connection.next()) ...
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/secure_context.h"

struct ssl_st;  // OpenSSL's SSL and BIO
struct bio_st;

namespace hasten::rendezvous {

using Clock = std::chrono::steady_clock;

class Connection {
 public:
  // Takes the connected socket.
  Connection(int socket, const SecureContext& context);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  int file() const { return socket_; }
  short events() const;  // of poll(2)
  // Reads and writes without waiting; reads at most 1 MiB, so that no other side can keep the
  // thread for itself.
  void advance();
  bool open() const { return why_closed_.empty(); }
  // Both sides know the token.
  bool known() const { return known_; }
  // This side, a server, has answered the other side's first message, which can be made only with
  // the token. Until known() it may be a copy of what another client has sent.
  bool has_answered() const { return has_answered_; }
  const std::string& why_closed() const { return why_closed_; }
  // It was closed because the other side has another token: it said so by a TLS alert.
  bool refused() const { return refused_; }
  // The other side has closed it in order, as the kernel does for a process that has ended.
  bool ended() const { return ended_; }

  // Throws DataError "rendezvous.message" if the message is longer than kLongestMessage; the
  // connection stays as it was.
  void send(std::string_view message);
  bool has_unsent() const { return !outgoing_.empty(); }
  bool has_message() const { return !messages_.empty(); }
  std::optional<std::string> next();

  // Waits for the next message. Throws IoError "rendezvous.lost", "rendezvous.time".
  std::string receive(Clock::time_point deadline, std::string_view what);
  // Waits until everything is sent, or the other side is gone, or it is too late.
  void flush(Clock::time_point deadline);

 private:
  void close_because(std::string why);
  void shake_hands();
  void read_socket();
  void write_socket();
  void read_messages();
  void take_from_tls();
  void encrypt(std::string_view bytes);

  struct Free {
    void operator()(ssl_st* tls) const;
  };
  int socket_;
  Side side_;
  std::unique_ptr<ssl_st, Free> tls_;
  bio_st* from_socket_;  // both belong to tls_
  bio_st* to_socket_;
  bool known_ = false, has_answered_ = false, refused_ = false, ended_ = false;
  std::string why_closed_;
  std::string outgoing_;      // encrypted, for the socket
  std::string incoming_;      // decrypted, not yet a whole message
  std::string before_known_;  // sent when the handshake is over
  std::deque<std::string> messages_;
};

}  // namespace hasten::rendezvous
