// File: launch/contact.h (internal)
// A launcher's contact with the coordinator (rendezvous/coordinator.h): messages both ways,
// a keep-alive each second, and a new connection when the old one is lost or silent.
//
//   Contact contact(place, token, limits, [&] { return what_to_say_first(); });
//   poll contact.file() for contact.events(), at most contact.longest_wait() milliseconds
//   while (auto message = contact.next()) ...
//   if (contact.lost_because()) ...                        // it will not come back
//
// Keep-alive messages come from a thread, because a terminal that is not read may block the
// launcher's own thread. Silence is counted only while this process runs: one that was suspended
// reads first what has come meanwhile.
//
// Throws, before the first contact alone, IoError "rendezvous.host", "rendezvous.connect",
// ConfigError "rendezvous.refused". Thread rule: one thread.
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
    Endpoint named;    // as people know it
    Endpoint reached;  // where to connect
  };
  struct Limits {
    double keep_alive_timeout;  // seconds without a word, after which a new connection is made
    double join_timeout;        // seconds until there is a connection
  };
  // `introduction`: the messages that begin each connection.
  using Introduction = std::function<std::vector<nlohmann::json>()>;
  Contact(Place place, const std::string& token, Limits limits, Introduction introduction);
  Contact(const Contact&) = delete;
  Contact& operator=(const Contact&) = delete;
  ~Contact();

  int file() const;
  short events() const;
  int longest_wait() const;
  // Does what can be done without waiting, and gives the next message that is no keep-alive.
  std::optional<nlohmann::json> next();
  // Without a connection nothing is sent: the introduction says what is to be known.
  void send(const nlohmann::json& message);
  bool is_up() const { return !dialer_; }
  // Set once the contact is lost for good.
  const std::optional<std::string>& lost_because() const { return lost_because_; }

  // Why there is no connection yet; and the same for people, with this machine's address on the way
  // and the seconds that are left.
  std::string why_waiting() const;
  std::string waiting_text() const;
  // A line about a connection that was lost or has come back, once.
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
  Time now_, heard_, since_;  // since_: there is no connection
  std::optional<Dialer> dialer_;
  bool had_one_ = false, told_ = false;  // a connection; people, that it is lost
  std::string why_;                      // the connection was lost
  std::optional<std::string> lost_because_, news_;

  mutable std::mutex turn_;  // of the connection, which the keep-alive thread shares
  std::unique_ptr<rendezvous::Connection> connection_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread alive_;
};

}  // namespace hasten
