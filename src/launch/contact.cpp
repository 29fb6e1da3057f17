#include "launch/contact.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/host_name.h"
#include "rendezvous/job_server.h"

namespace hasten {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kKeepAlive = 1s;
// In milliseconds. A RunningClock must be asked regularly, and a silent server wakes no poll.
constexpr int kLongestWait = 1000;

// JSON requires UTF-8, which the output of ranks need not be.
std::string bytes_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

double seconds_of(rendezvous::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Contact::Contact(Place place, const std::string& token, Limits limits, Introduction introduction)
    : place_(std::move(place)),
      limits_(limits),
      context_(rendezvous::Side::client, token),
      introduction_(std::move(introduction)),
      now_(clock_.now()),
      heard_(now_),
      since_(now_) {
  dialer_.emplace(place_.reached, context_, std::string(rendezvous::kAgentGreeting));
}

Contact::~Contact() {
  {
    const std::lock_guard<std::mutex> turn(turn_);
    is_over_ = true;
  }
  over_.notify_all();
  if (alive_.joinable()) alive_.join();
}

// Tries again at each call, as a system without a free thread may have one later.
void Contact::start_keeping_alive() {
  if (!alive_.joinable()) alive_ = start_thread([this] { keep_alive(); });
}

void Contact::keep_alive() {
  std::unique_lock<std::mutex> turn(turn_);
  while (!over_.wait_for(turn, kKeepAlive, [&] { return is_over_; })) {
    if (connection_ && connection_->open()) connection_->send(R"({"kind": "alive"})");
  }
}

int Contact::file() const {
  if (lost_because_) return -1;
  if (dialer_) return dialer_->file();
  const std::lock_guard<std::mutex> turn(turn_);
  return connection_->file();
}

short Contact::events() const {
  if (dialer_) return dialer_->events();
  const std::lock_guard<std::mutex> turn(turn_);
  return connection_->events();
}

int Contact::longest_wait() const {
  return dialer_ && !lost_because_ ? std::min(dialer_->longest_wait(), kLongestWait) : kLongestWait;
}

void Contact::send(const json& message) {
  const std::lock_guard<std::mutex> turn(turn_);
  if (connection_) connection_->send(bytes_of(message));
}

std::optional<json> Contact::next() {
  now_ = clock_.now();
  if (clock_.has_paused()) heard_ = now_;
  if (lost_because_) return std::nullopt;
  start_keeping_alive();
  if (dialer_) connect(now_);
  if (dialer_) return std::nullopt;
  auto message = read(now_);
  if (!message) lose_if_silent_or_closed(now_);
  return message;
}

std::optional<json> Contact::read(Time now) {
  const std::lock_guard<std::mutex> turn(turn_);
  connection_->advance();
  while (const auto message = connection_->next()) {
    heard_ = now;
    json parsed = json::parse(*message);
    if (parsed.value("kind", "") != "alive") return parsed;
  }
  return std::nullopt;
}

void Contact::lose_if_silent_or_closed(Time now) {
  const bool silent = seconds_of(now - heard_) > limits_.keep_alive_timeout + 1;
  std::string why;
  {
    const std::lock_guard<std::mutex> turn(turn_);
    if (!connection_->open()) why = connection_->why_closed();
    if (connection_->open() && silent) {
      why = "it sends no messages";
      // A server that was suspended must not take the end of this connection for the launcher's
      // end.
      connection_->send(R"({"kind": "reconnecting"})");
    }
  }
  if (!why.empty()) lose(why, now);
}

void Contact::lose(const std::string& why, Time now) {
  {
    const std::lock_guard<std::mutex> turn(turn_);
    connection_.reset();
  }
  why_ = why;
  since_ = now;
  dialer_.emplace(place_.reached, context_, std::string(rendezvous::kAgentGreeting));
  connect(now);
}

void Contact::connect(Time now) {
  if (auto connection = dialer_->advance()) return take(std::move(connection), now);
  had_one_ ? check_attempt(now) : check_first_attempt(now);
}

void Contact::take(std::unique_ptr<rendezvous::Connection> connection, Time now) {
  {
    const std::lock_guard<std::mutex> turn(turn_);
    connection_ = std::move(connection);
  }
  dialer_.reset();
  heard_ = now;
  if (told_) news_ = str("connected to the coordinator at ", text_of(place_.named), " again");
  had_one_ = true;
  told_ = false;
  for (const json& message : introduction_()) send(message);
}

double Contact::seconds_left(Time now) const {
  return std::max(0.0, limits_.join_timeout - seconds_of(now - since_));
}

void Contact::check_first_attempt(Time now) const {
  if (dialer_->problem() == Dialer::Problem::unknown_host && !names_may_come())
    throw unknown_host(place_.named.host, dialer_->why());
  if (dialer_->problem() == Dialer::Problem::wrong_token) {
    throw ConfigError(
        "rendezvous.refused",
        {.what = str("the coordinator at ", text_of(place_.named),
                     " has refused this machine: ", dialer_->why()),
         .hint = "use the same token on every machine (HASTEN_JOB_TOKEN or --token_file)"});
  }
  if (seconds_left(now) > 0) return;
  throw IoError("rendezvous.connect",
                {.what = "connecting to the coordinator at " + text_of(place_.named),
                 .got = dialer_->why().empty() ? "no answer" : dialer_->why(),
                 .expected = str("an answer within ", fixed(limits_.join_timeout, 0), " s"),
                 .hint = "check that the launcher there has started, and that this machine can "
                         "connect to its port"});
}

// If nobody listens on the machine any more, the coordinator has ended. Other problems may pass: a
// cut cable, a suspended process, a full firewall table.
void Contact::check_attempt(Time now) {
  using Problem = Dialer::Problem;
  const Problem problem = dialer_->problem();
  if (problem == Problem::nobody_listens || problem == Problem::wrong_token ||
      seconds_left(now) == 0) {
    lost_because_ = why_;
  } else if (seconds_of(now - since_) > 1 && !told_) {
    told_ = true;
    news_ = str("lost the connection to the coordinator at ", text_of(place_.named), ": ", why_,
                "; retrying for ", fixed(limits_.join_timeout, 0), " s");
  }
}

std::string Contact::why_waiting() const {
  return !dialer_ || dialer_->why().empty() ? "no answer" : dialer_->why();
}

std::string Contact::waiting_text() const {
  const std::string way = dialer_ ? dialer_->way() : "";
  return str(why_waiting(), way.empty() ? "" : ", from " + way, "; ",
             static_cast<std::int64_t>(seconds_left(now_)), " s left");
}

std::optional<std::string> Contact::news() { return std::exchange(news_, std::nullopt); }

}  // namespace hasten
