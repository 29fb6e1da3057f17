#include "launch/dialer.h"

#include <poll.h>

#include <algorithm>

#include "hasten/base/text.h"
#include "rendezvous/sockets.h"

namespace hasten {
namespace {

using rendezvous::Attempted;
using rendezvous::Clock;
using rendezvous::Connection;
using namespace std::chrono_literals;

constexpr auto kForTheName = 30s;       // as long as the system takes to ask three name servers
constexpr auto kForAllAddresses = 5s;   // a new attempt comes sooner than TCP's own retransmission
constexpr auto kForTheHandshake = 30s;  // a server that is suspended answers when it wakes
constexpr auto kShortestPause = 100ms;
constexpr auto kLongestPause = 5s;

}  // namespace

Dialer::Dialer(Endpoint endpoint, const rendezvous::SecureContext& context, std::string greeting)
    : endpoint_(std::move(endpoint)),
      context_(context),
      greeting_(std::move(greeting)),
      backoff_(kShortestPause, kLongestPause) {}

int Dialer::file() const {
  if (connection_) return connection_->file();
  return dial_ ? dial_->file() : -1;
}

short Dialer::events() const {
  if (connection_) return connection_->events();
  return dial_ ? dial_->events() : POLLIN;
}

int Dialer::longest_wait() const {
  if (dial_) return dial_->longest_wait();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

void Dialer::fail(std::string why, Problem problem) {
  connection_.reset();
  why_ = std::move(why);
  problem_ = problem;
  until_ = Clock::now() + backoff_.next();
}

std::unique_ptr<Connection> Dialer::advance() {
  if (connection_) return shake_hands();
  if (!dial_ && Clock::now() < until_) return nullptr;
  if (!dial_) dial_.emplace(endpoint_, Clock::now() + kForTheName, kForAllAddresses);
  dial_->advance();
  if (!dial_->done()) return nullptr;
  const Attempted attempted = dial_->take();
  if (const auto address = dial_->address()) address_ = address;
  dial_.reset();
  if (attempted.socket < 0) {
    fail(attempted.why, attempted.unknown_host ? Problem::unknown_host
                        : attempted.refused    ? Problem::nobody_listens
                                               : Problem::none);
    return nullptr;
  }
  connection_ = std::make_unique<Connection>(attempted.socket, context_);
  connection_->send(greeting_);
  until_ = Clock::now() + kForTheHandshake;
  return shake_hands();
}

std::unique_ptr<Connection> Dialer::shake_hands() {
  connection_->advance();
  if (connection_->known()) return std::move(connection_);
  if (!connection_->open()) {
    const bool refused = connection_->refused();
    fail(refused ? connection_->why_closed()
                 : str("a busy server (", connection_->why_closed(), ")"),
         refused ? Problem::wrong_token : Problem::none);
  } else if (Clock::now() >= until_) {
    fail("no answer", Problem::none);
  }
  return nullptr;
}

std::string Dialer::way() const {
  if (!address_) return "";
  const std::string own = rendezvous::address_towards(*address_);
  const std::string interface = rendezvous::interface_of(own);
  return interface.empty() ? "" : str(own, " (", interface, ")");
}

}  // namespace hasten
