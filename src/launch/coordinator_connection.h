// File: launch/coordinator_connection.h (internal)
// A launcher's connection to the coordinator (rendezvous/coordinator.h): messages both ways, a
// keep-alive message each second, and a new connection when the old one is lost or silent.
//
//   CoordinatorConnection coordinator(endpoints, token, timeouts,
//                                     [&] { return opening_messages(); });
//   poll coordinator.descriptor() for coordinator.events(), at most coordinator.longest_wait() ms
//   while (auto message = coordinator.next()) ...
//   if (coordinator.loss_reason()) ...                     // there will be no other connection
//
// A thread sends the keep-alive messages, so that a launcher does not look dead while its own
// thread waits, for example for the reader of its output. Silence counts only while this process
// runs: after a suspension it first reads the messages that have arrived.
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
#include "launch/connector.h"
#include "rendezvous/connection.h"

namespace hasten {

class CoordinatorConnection {
 public:
  struct Endpoints {
    Endpoint displayed;  // as the user gave it, for messages
    Endpoint target;     // to connect to
  };
  struct Timeouts {
    double keep_alive_timeout;  // seconds without a message before a new connection is made
    double join_timeout;        // seconds in which a connection must be made
  };
  // Returns the messages that begin each new connection.
  using OpeningMessages = std::function<std::vector<nlohmann::json>()>;
  CoordinatorConnection(Endpoints endpoints, const std::string& token, Timeouts timeouts,
                        OpeningMessages opening_messages);
  CoordinatorConnection(const CoordinatorConnection&) = delete;
  CoordinatorConnection& operator=(const CoordinatorConnection&) = delete;
  ~CoordinatorConnection();

  int descriptor() const;
  short events() const;
  int longest_wait() const;
  // Does what is possible without waiting. Returns the next message other than a keep-alive, if
  // any.
  std::optional<nlohmann::json> next();
  // Drops the message if there is no connection. The opening messages of the next connection must
  // include it.
  void send(const nlohmann::json& message);
  bool is_connected() const { return !connector_; }
  // The reason why the coordinator is lost permanently; null if it is not lost.
  const std::optional<std::string>& loss_reason() const { return loss_reason_; }

  // Returns why there is no connection yet.
  std::string waiting_reason() const;
  // Returns the same reason for users, with this machine's address on the route and the seconds
  // left.
  std::string waiting_text() const;
  // Returns a line about a connection that was lost or made again, once.
  std::optional<std::string> take_notice();

 private:
  using Time = rendezvous::Clock::time_point;
  void connect(Time now);
  void adopt(std::unique_ptr<rendezvous::Connection> connection, Time now);
  void check_first_attempt(Time now) const;
  void check_attempt(Time now);
  std::optional<nlohmann::json> read_message(Time now);
  void reconnect_if_silent_or_closed(Time now);
  void reconnect(const std::string& why, Time now);
  double seconds_left(Time now) const;
  void start_keep_alive_thread();
  void send_keep_alives();

  const Endpoints endpoints_;
  const Timeouts timeouts_;
  const rendezvous::SecureContext context_;
  const OpeningMessages opening_messages_;
  RunningClock clock_;
  Time now_;                            // the time of the last next()
  Time last_message_;                   // when the last message came
  Time disconnected_since_;             // when the connection was lost
  std::optional<Connector> connector_;  // empty while there is a connection
  bool was_connected_ = false;          // true if there was a connection
  bool loss_is_reported_ = false;       // true if the loss of the connection was reported
  std::string disconnect_reason_;       // why the connection was lost
  std::optional<std::string> loss_reason_, notice_;

  mutable std::mutex mutex_;  // guards the connection, which the keep-alive thread uses too
  std::unique_ptr<rendezvous::Connection> connection_;
  std::condition_variable stopping_;
  bool is_stopping_ = false;
  std::thread keep_alive_thread_;
};

}  // namespace hasten
