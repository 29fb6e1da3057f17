#include "launch/connector.h"

#include <poll.h>

#include "base/poll_timeout.h"
#include "hasten/base/text.h"
#include "rendezvous/sockets.h"

namespace hasten {
namespace {

using rendezvous::Clock;
using rendezvous::Connection;
using rendezvous::ConnectResult;
using namespace std::chrono_literals;

constexpr auto kLookupTimeout = 30s;     // as long as the system takes to ask three name servers
constexpr auto kConnectTimeout = 5s;     // a new attempt comes sooner than TCP's own retransmission
constexpr auto kHandshakeTimeout = 30s;  // a server that is suspended answers when it wakes
constexpr auto kMinRetryPause = 100ms;
constexpr auto kMaxRetryPause = 5s;

}  // namespace

Connector::Connector(Endpoint endpoint, const rendezvous::SecureContext& context,
                     std::string greeting)
    : endpoint_(std::move(endpoint)),
      context_(context),
      greeting_(std::move(greeting)),
      backoff_(kMinRetryPause, kMaxRetryPause) {}

int Connector::descriptor() const {
  if (connection_) return connection_->descriptor();
  return attempt_ ? attempt_->descriptor() : -1;
}

short Connector::events() const {
  if (connection_) return connection_->events();
  return attempt_ ? attempt_->events() : POLLIN;
}

int Connector::longest_wait() const {
  return attempt_ ? attempt_->longest_wait() : poll_timeout(wait_until_);
}

void Connector::fail(std::string why, Failure failure) {
  connection_.reset();
  failure_text_ = std::move(why);
  failure_ = failure;
  wait_until_ = Clock::now() + backoff_.next();
}

std::unique_ptr<Connection> Connector::advance() {
  if (connection_) return continue_handshake();
  if (!attempt_ && Clock::now() < wait_until_) return nullptr;
  if (!attempt_) attempt_.emplace(endpoint_, Clock::now() + kLookupTimeout, kConnectTimeout);
  attempt_->advance();
  if (!attempt_->done()) return nullptr;
  const ConnectResult result = attempt_->take();
  if (const auto address = attempt_->address()) address_ = address;
  attempt_.reset();
  if (result.socket < 0) {
    fail(result.error, result.unknown_host ? Failure::unknown_host
                       : result.refused    ? Failure::connection_refused
                                           : Failure::none);
    return nullptr;
  }
  connection_ = std::make_unique<Connection>(result.socket, context_);
  connection_->send(greeting_);
  wait_until_ = Clock::now() + kHandshakeTimeout;
  return continue_handshake();
}

std::unique_ptr<Connection> Connector::continue_handshake() {
  connection_->advance();
  if (connection_->is_authenticated()) return std::move(connection_);
  if (!connection_->is_open()) {
    const bool refused = connection_->was_rejected();
    fail(refused ? connection_->close_reason()
                 : str("a busy server (", connection_->close_reason(), ")"),
         refused ? Failure::wrong_token : Failure::none);
  } else if (Clock::now() >= wait_until_) {
    fail("no answer", Failure::none);
  }
  return nullptr;
}

std::string Connector::local_address_text() const {
  if (!address_) return "";
  const std::string own = rendezvous::address_on_route_to(*address_);
  const std::string interface = rendezvous::interface_of(own);
  return interface.empty() ? "" : str(own, " (", interface, ")");
}

}  // namespace hasten
