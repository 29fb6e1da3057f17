#include "launch/coordinator_connection.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_line.h"
#include "base/seconds.h"
#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/unknown_host.h"
#include "rendezvous/job_server.h"

namespace hasten {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kKeepAlive = 1s;
// In milliseconds. A RunningClock must be read regularly, and poll() sleeps while the server is
// silent.
constexpr int kMaxWaitMs = 1000;

}  // namespace

CoordinatorConnection::CoordinatorConnection(Endpoints endpoints, const std::string& token,
                                             Timeouts timeouts, OpeningMessages opening_messages)
    : endpoints_(std::move(endpoints)),
      timeouts_(timeouts),
      context_(rendezvous::Side::client, token),
      opening_messages_(std::move(opening_messages)),
      now_(clock_.now()),
      last_message_(now_),
      disconnected_since_(now_) {
  connector_.emplace(endpoints_.target, context_, std::string(rendezvous::kAgentGreeting));
}

CoordinatorConnection::~CoordinatorConnection() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  stopping_.notify_all();
  if (keep_alive_thread_.joinable()) keep_alive_thread_.join();
}

// Tries again at each call, because a system without a free thread may have one later.
void CoordinatorConnection::start_keep_alive_thread() {
  if (!keep_alive_thread_.joinable())
    keep_alive_thread_ = start_thread([this] { send_keep_alives(); });
}

void CoordinatorConnection::send_keep_alives() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_.wait_for(lock, kKeepAlive, [&] { return is_stopping_; })) {
    if (connection_ && connection_->is_open()) connection_->send(R"({"kind": "alive"})");
  }
}

int CoordinatorConnection::descriptor() const {
  if (loss_reason_) return -1;
  if (connector_) return connector_->descriptor();
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_->descriptor();
}

short CoordinatorConnection::events() const {
  if (connector_) return connector_->events();
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_->events();
}

int CoordinatorConnection::longest_wait() const {
  return connector_ && !loss_reason_ ? std::min(connector_->longest_wait(), kMaxWaitMs)
                                     : kMaxWaitMs;
}

void CoordinatorConnection::send(const json& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connection_) connection_->send(json_line(message));
}

std::optional<json> CoordinatorConnection::next() {
  now_ = clock_.now();
  if (clock_.was_suspended()) last_message_ = now_;
  if (loss_reason_) return std::nullopt;
  start_keep_alive_thread();
  if (connector_) connect(now_);
  if (connector_) return std::nullopt;
  auto message = read_message(now_);
  if (!message) reconnect_if_silent_or_closed(now_);
  return message;
}

std::optional<json> CoordinatorConnection::read_message(Time now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_->advance();
  while (const auto message = connection_->next()) {
    last_message_ = now;
    json parsed = json::parse(*message);
    if (parsed.value("kind", "") != "alive") return parsed;
  }
  return std::nullopt;
}

void CoordinatorConnection::reconnect_if_silent_or_closed(Time now) {
  const bool silent = seconds_of(now - last_message_) > timeouts_.keep_alive_timeout + 1;
  std::string why;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!connection_->is_open()) why = connection_->close_reason();
    if (connection_->is_open() && silent) {
      why = "it sends no messages";
      // Otherwise a server that was suspended would treat the end of this connection as the end of
      // the launcher.
      connection_->send(R"({"kind": "reconnecting"})");
    }
  }
  if (!why.empty()) reconnect(why, now);
}

void CoordinatorConnection::reconnect(const std::string& why, Time now) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_.reset();
  }
  disconnect_reason_ = why;
  disconnected_since_ = now;
  connector_.emplace(endpoints_.target, context_, std::string(rendezvous::kAgentGreeting));
  connect(now);
}

void CoordinatorConnection::connect(Time now) {
  if (auto connection = connector_->advance()) return adopt(std::move(connection), now);
  if (was_connected_) {
    check_attempt(now);
  } else {
    check_first_attempt(now);
  }
}

void CoordinatorConnection::adopt(std::unique_ptr<rendezvous::Connection> connection, Time now) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_ = std::move(connection);
  }
  connector_.reset();
  last_message_ = now;
  if (loss_is_reported_)
    notice_ = str("connected to the coordinator at ", to_text(endpoints_.displayed), " again");
  was_connected_ = true;
  loss_is_reported_ = false;
  for (const json& message : opening_messages_()) send(message);
}

double CoordinatorConnection::seconds_left(Time now) const {
  return std::max(0.0, timeouts_.join_timeout - seconds_of(now - disconnected_since_));
}

void CoordinatorConnection::check_first_attempt(Time now) const {
  if (connector_->failure() == Connector::Failure::unknown_host && !host_names_may_appear_later())
    throw unknown_host_error(endpoints_.displayed.host, connector_->failure_text());
  if (connector_->failure() == Connector::Failure::wrong_token) {
    throw ConfigError(
        "rendezvous.refused",
        {.what = str("the coordinator at ", to_text(endpoints_.displayed),
                     " has refused this machine: ", connector_->failure_text()),
         .hint = "use the same token on every machine (HASTEN_JOB_TOKEN or --token_file)"});
  }
  if (seconds_left(now) > 0) return;
  throw IoError(
      "rendezvous.connect",
      {.what = "connecting to the coordinator at " + to_text(endpoints_.displayed),
       .got = connector_->failure_text().empty() ? "no answer" : connector_->failure_text(),
       .expected = str("an answer within ", fixed(timeouts_.join_timeout, 0), " s"),
       .hint = "check that the launcher there has started, and that this machine can "
               "connect to its port"});
}

// If no process listens on the machine any more, the coordinator has ended. Other problems may be
// temporary: a disconnected cable, a suspended process, a full firewall table.
void CoordinatorConnection::check_attempt(Time now) {
  using Failure = Connector::Failure;
  const Failure failure = connector_->failure();
  if (failure == Failure::connection_refused || failure == Failure::wrong_token ||
      seconds_left(now) == 0) {
    loss_reason_ = disconnect_reason_;
  } else if (seconds_of(now - disconnected_since_) > 1 && !loss_is_reported_) {
    loss_is_reported_ = true;
    notice_ = str("lost the connection to the coordinator at ", to_text(endpoints_.displayed), ": ",
                  disconnect_reason_, "; retrying for ", fixed(timeouts_.join_timeout, 0), " s");
  }
}

std::string CoordinatorConnection::waiting_reason() const {
  return !connector_ || connector_->failure_text().empty() ? "no answer"
                                                           : connector_->failure_text();
}

std::string CoordinatorConnection::waiting_text() const {
  const std::string local_address = connector_ ? connector_->local_address_text() : "";
  return str(waiting_reason(), local_address.empty() ? "" : ", from " + local_address, "; ",
             static_cast<std::int64_t>(seconds_left(now_)), " s left");
}

std::optional<std::string> CoordinatorConnection::take_notice() {
  return std::exchange(notice_, std::nullopt);
}

}  // namespace hasten
