// Names, addresses and ports that answer, refuse, or do not exist.
#include "rendezvous/connect_attempt.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "rendezvous/backoff.h"
#include "rendezvous/sockets.h"

namespace rendezvous_connect_attempt_test {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

TEST_CASE("connect attempt: a numeric address needs no name server") {
  const Lookup four({.host = "127.0.0.1", .port = 1}), six({.host = "::1", .port = 1});
  CHECK(four.done());
  CHECK(six.done());
  REQUIRE(four.result().addresses.size() == 1);
  CHECK(four.result().addresses[0].bytes.ss_family == AF_INET);
  CHECK(six.result().addresses[0].bytes.ss_family == AF_INET6);
  CHECK(is_this_machine(four.result()));
}

TEST_CASE("connect attempt: a lookup that takes too long finds nothing, and may be given up") {
  const LookupResult found = look_up({.host = "no.such.host.invalid", .port = 1}, 0);
  CHECK(found.addresses.empty());
  CHECK_FALSE(found.error.empty());
  { const Lookup given_up({.host = "no.such.host.invalid", .port = 1}); }
}

TEST_CASE("connect attempt: a port with a listener connects, and one without a listener refuses") {
  const int listener = listen_on(/*loopback_only=*/true, 0);
  const Endpoint endpoint{.host = "127.0.0.1", .port = port_of(listener)};
  const ConnectResult result = connect_to(endpoint, 10);
  CHECK(result.socket >= 0);
  close(result.socket);
  close(listener);
  const ConnectResult refused = connect_to(endpoint, 10);
  CHECK(refused.socket < 0);
  CHECK(refused.refused);
  CHECK(refused.error == "Connection refused");
}

TEST_CASE("connect attempt: the deadline covers all addresses together") {
  const auto began = ConnectAttempt::Clock::now();
  ConnectAttempt attempt({.host = "127.0.0.1", .port = 1}, began);
  CHECK(attempt.done());
  CHECK(attempt.take().socket < 0);
}

TEST_CASE("connect attempt: pauses grow up to the longest, and have random lengths") {
  Backoff backoff(100ms, 1000ms);
  auto longest = 100ms;
  for (int i = 0; i < 10; ++i) {
    const auto pause = backoff.next();
    CHECK(pause >= longest / 2);
    CHECK(pause <= longest);
    longest = std::min(longest * 2, 1000ms);
  }
}

}  // namespace rendezvous_connect_attempt_test
