// File: launch/contact.h (internal)
// A launcher's connection to the coordinator (rendezvous/coordinator.h): messages both ways, a
// keep-alive message each second, and a new connection when the old one is lost or silent.
//
//   Contact contact(place, token, limits, [&] { return first_messages(); });
//   poll contact.file() for contact.events(), at most contact.longest_wait() milliseconds
//   while (auto message = contact.next()) ...
//   if (contact.lost_because()) ...                        // there will be no other connection
//
// A thread sends the keep-alive messages, so that a launcher whose own thread waits, for example
// for the reader of its output, does not look dead. Silence counts only while this process runs:
// after a suspension it first reads what has come meanwhile.
//
// next() throws IoError "rendezvous.host", "rendezvous.connect" and ConfigError
// "rendezvous.refused", but only before the first connection. Thread rule: one thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/running_clock.h"
#include "launch/dialer.h"
#include "rendezvous/connection.h"

namespace hasten {

class Contact {
 public:
  struct Place {
    Endpoint named;    // as the user has given it, for messages
    Endpoint reached;  // to connect to
  };
  struct Limits {
    double keep_alive_timeout;  // seconds without a message, after which a new connection is made
    double join_timeout;        // seconds within which a connection must be made
  };
  // Returns the messages that begin each new connection.
  using Introduction = std::function<std::vector<nlohmann::json>()>;
  Contact(Place place, const std::string& token, Limits limits, Introduction introduction);
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;
  ~Contact();

  int file() const;
  short events() const;
  int longest_wait() const;
  // Does what is possible without waiting. Returns the next message other than a keep-alive, if
  // any.
  std::optional<nlohmann::json> next();
  // Drops the message if there is no connection: the next introduction has to include it.
  void send(const nlohmann::json& message);
  bool is_up() const { return !dialer_; }
  // Why the coordinator is lost for good; null if it is not.
  const std::optional<std::string>& lost_because() const { return lost_because_; }

  // Why there is no connection yet.
  std::string why_waiting() const;
  // The same for people, with this machine's address on the way there and the seconds left.
  std::string waiting_text() const;
  // Returns a line about a connection that was lost or made again, once.
  std::optional<std::string> news();

 private:
  using Time = rendezvous::Clock::time_point;
  void connect(Time now);
  void take(std::unique_ptr<rendezvous::Connection> connection, Time now);
  void check_first_attempt(Time now) const;
  void check_attempt(Time now);
  std::optional<nlohmann::json> read(Time now);
  void lose_if_silent_or_closed(Time now);
  void lose(const std::string& why, Time now);
  double seconds_left(Time now) const;
  void start_keeping_alive();
  void keep_alive();

  const Place place_;
  const Limits limits_;
  const rendezvous::SecureContext context_;
  const Introduction introduction_;
  RunningClock clock_;
  Time now_, heard_, since_;             // of the last next(), message and loss of the connection
  std::optional<Dialer> dialer_;         // empty while there is a connection
  bool had_one_ = false, told_ = false;  // there was a connection; its loss was reported
  std::string why_;                      // why the connection was lost
  std::optional<std::string> lost_because_, news_;

  mutable std::mutex turn_;  // guards the connection, which the keep-alive thread uses too
  std::unique_ptr<rendezvous::Connection> connection_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread alive_;
};

}  // namespace hasten
