// After an error, clients and connections give right answers or none.
#include <doctest/doctest.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>

#include "base/descriptor.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"
#include "unit/code_of.h"

namespace rendezvous_client_recovery_test {

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

const std::string kToken = "the token of a test in step 012";

// A store that answers when the test calls answer().
struct SlowStore {
  Descriptor listener{listen_on(/*loopback_only=*/true, 0)};
  SecureContext context{Side::server, kToken};
  std::unique_ptr<Connection> connection;

  Endpoint endpoint() const { return {.host = "127.0.0.1", .port = port_of(listener.get())}; }
  void accept_client() {
    int socket = -1;
    while ((socket = accept(listener.get(), nullptr, nullptr)) < 0)
      std::this_thread::sleep_for(1ms);
    connection = std::make_unique<Connection>(socket, context);
    receive();
    connection->send(kStoreGreeting);
  }
  std::string receive() { return connection->receive(Clock::now() + 20s, "a request"); }
  void answer(const std::string& request, std::int64_t value) {
    const std::int64_t number = Unpacker(request).number();
    connection->send(Packer()
                         .number(number)
                         .number(static_cast<std::int64_t>(StoreStatus::done))
                         .number(value)
                         .bytes());
  }
};

TEST_CASE("client recovery: a late answer is not taken for the next request's") {
  SlowStore store;
  std::thread serves([&] {
    store.accept_client();
    // The client gives up the first request.
    const std::string first = store.receive(), second = store.receive();
    store.answer(first, 1);
    store.answer(second, 5);
    store.answer(store.receive(), 0);
    store.connection->flush(Clock::now() + 10s);
    code_of([&] { store.receive(); });  // blocks until the client ends
  });
  {
    StoreClient client(store.endpoint(), kToken, 20s, 2s);
    CHECK(code_of([&] { client.check({"answer"}); }) == "rendezvous.time");
    std::int64_t sum = 0;
    CHECK(code_of([&] { sum = client.add("counter", 5); }) == "none");
    CHECK(sum == 5);
    bool there = true;
    CHECK(code_of([&] { there = client.check({"nothing"}); }) == "none");
    CHECK_FALSE(there);
  }
  serves.join();
}

TEST_CASE("client recovery: errors that another library has left in OpenSSL change nothing") {
  JobServer server({.token = kToken});
  const auto leave_error = [] {
    BIO* const text = BIO_new_mem_buf("no certificate", -1);
    // Reading the end of a list of certificates leaves this error.
    PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
    BIO_free(text);
  };
  leave_error();
  StoreClient store({.host = "127.0.0.1", .port = server.port()}, kToken, 10s);
  for (int i = 0; i < 5; ++i) {
    leave_error();
    CHECK(code_of([&] { store.set("key", "value"); }) == "none");
  }
  ERR_clear_error();
}

TEST_CASE("client recovery: a value that is too long is refused before it is sent") {
  JobServer server({.token = kToken});
  StoreClient store({.host = "127.0.0.1", .port = server.port()}, kToken, 10s);
  const std::string too_long(kMaxMessageBytes, 'x');
  CHECK(code_of([&] { store.set("key", too_long); }) == "rendezvous.message");
  CHECK(code_of([&] { store.append("key", too_long); }) == "rendezvous.message");
  store.set("key", "value");
  CHECK(store.get({"key"}, 0ms)[0] == "value");
}

TEST_CASE("client recovery: a rank of another version gets an error that says so") {
  JobServer server({.token = kToken});
  const SecureContext context(Side::client, kToken);
  Connection old(connect_to({.host = "127.0.0.1", .port = server.port()}, 5).socket, context);
  old.send("store");
  CHECK(old.receive(Clock::now() + 10s, "the greeting") == kStoreGreeting);
  CHECK(code_of([&] { old.receive(Clock::now() + 10s, "the end"); }) == "rendezvous.lost");
}

}  // namespace

}  // namespace rendezvous_client_recovery_test
