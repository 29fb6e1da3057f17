#include "process/backend/link.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "hasten/base/error.h"
#include "process/backend/link_loop.h"
#include "unit/code_of.h"
#include "unit/thread_shortage.h"

namespace process_link_test {

namespace {

using namespace hasten;

struct Owner : TransferOwner {
  std::atomic<int> received_count = 0, sent_count = 0, failures = 0;
  std::string why;
  void on_received(int) override { ++received_count; }
  void on_sent(int) override { ++sent_count; }
  void on_failed(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& thrown) {
      why = thrown.what();
    }
    ++failures;
  }
};

template <class Holds>
void wait_until(const Holds& holds) {
  for (int trial = 0; trial < 5000 && !holds(); ++trial)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(holds());
}

// Two ranks in one process. Each has its own loop.
struct LinkPair {
  struct Side {
    std::atomic<int> offers = 0;
    std::atomic<int> failed = 0;
    Link::Events events{.on_write_interest_changed =
                            [this](int, bool wants) { loop.set_write_interest(*link, wants); },
                        .on_offered = [this](int, std::uint64_t) { ++offers; },
                        .on_failed =
                            [this](int) {
                              ++failed;
                              loop.drop(*link);
                            }};
    std::unique_ptr<Link> link;
    LinkLoop loop;  // destroyed before the link
  };
  Side first, second;

  explicit LinkPair(bool encrypted = false,
                    std::uint64_t key_lifetime_bytes = rendezvous::TlsStream::kKeyLifetimeBytes) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    auto streams = encrypted ? over_tls(ends, key_lifetime_bytes) : plain(ends);
    first.link = std::make_unique<Link>(1, std::move(streams[0]), first.events);
    second.link = std::make_unique<Link>(0, std::move(streams[1]), second.events);
  }
  void start() {
    if (std::exchange(is_started_, true)) return;
    first.loop.start({first.link.get()});
    second.loop.start({second.link.get()});
  }

 private:
  using Streams = std::array<std::unique_ptr<rendezvous::ByteStream>, 2>;
  static Streams plain(const int* ends) {
    Streams streams;
    for (std::size_t i = 0; i < 2; ++i)
      streams[i] = std::make_unique<rendezvous::PlainStream>(std::make_unique<Descriptor>(ends[i]));
    return streams;
  }
  static Streams over_tls(const int* ends, std::uint64_t key_lifetime_bytes) {
    using namespace rendezvous;
    Streams streams;
    for (std::size_t i = 0; i < 2; ++i) {
      auto context = std::make_shared<SecureContext>(
          i == 0 ? rendezvous::Side::server : rendezvous::Side::client,
          "0123456789abcdef0123456789abcdef");
      streams[i] = std::make_unique<TlsStream>(std::make_unique<Descriptor>(ends[i]),
                                               std::move(context), key_lifetime_bytes);
    }
    Handshake client = Handshake::running, server = client;
    for (int turn = 0; turn < 10 && (client != Handshake::done || server != client); ++turn) {
      client = streams[1]->handshake();
      server = streams[0]->handshake();
    }
    REQUIRE(client == Handshake::done);
    REQUIRE(server == Handshake::done);
    return streams;
  }
  bool is_started_ = false;
};

Transfer transfer_of(std::vector<std::byte>& memory, Owner& owner) {
  return {.at = memory.data(), .bytes = memory.size(), .owner = &owner};
}
std::vector<std::byte> pattern(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

}  // namespace

TEST_CASE("link: messages of a slot arrive in order, whichever side is first") {
  for (const bool receiver_first : {true, false}) {
    Owner sender, receiver;
    LinkPair pair;
    pair.start();
    // An empty message, small ones, and some that no socket accepts at once.
    std::vector<std::vector<std::byte>> sent, got;
    for (const std::size_t size : {0, 1, 24, 16360, 16361, 3 << 20, 5, 40 << 20}) {
      sent.push_back(pattern(size, static_cast<int>(sent.size())));
      got.emplace_back(size);
    }
    const auto send = [&] {
      for (auto& each : sent) pair.first.link->send(transfer_of(each, sender), 7);
    };
    const auto receive = [&] {
      for (auto& each : got) pair.second.link->receive(transfer_of(each, receiver), 7);
    };
    receiver_first ? receive() : send();
    receiver_first ? send() : receive();
    wait_until([&] { return receiver.received_count == std::ssize(got); });
    wait_until([&] { return sender.sent_count == std::ssize(sent); });
    for (std::size_t i = 0; i < sent.size(); ++i) CHECK((sent[i] == got[i]));
  }
}

TEST_CASE("link: slots do not wait for each other, and both directions transfer at once") {
  Owner owners[4];
  auto a = pattern(8 << 20, 1), b = pattern(8 << 20, 2);
  std::vector<std::byte> into_a(a.size()), into_b(b.size());
  LinkPair pair;
  pair.start();
  pair.first.link->send(transfer_of(a, owners[0]), 1);  // not received yet
  pair.second.link->send(transfer_of(b, owners[1]), 2);
  pair.first.link->receive(transfer_of(into_b, owners[2]), 2);
  wait_until([&] { return owners[2].received_count == 1; });
  CHECK(owners[0].sent_count == 0);
  pair.second.link->receive(transfer_of(into_a, owners[3]), 1);
  wait_until([&] { return owners[3].received_count == 1; });
  CHECK((into_a == a));
  CHECK((into_b == b));
}

TEST_CASE("link: an offered message goes to the receiver that asks for one") {
  Owner sender, receiver;
  auto bytes = pattern(100, 3);
  std::vector<std::byte> room(100);
  LinkPair pair;
  pair.start();
  CHECK_FALSE(pair.second.link->receive_offered(transfer_of(room, receiver), 5));
  pair.first.link->send(transfer_of(bytes, sender), 5);
  wait_until([&] { return pair.second.offers == 1; });
  CHECK_FALSE(pair.second.link->receive_offered(transfer_of(room, receiver), 6));
  CHECK(pair.second.link->receive_offered(transfer_of(room, receiver), 5));
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == bytes));
  // The next message of the slot is a separate offer.
  CHECK_FALSE(pair.second.link->receive_offered(transfer_of(room, receiver), 5));
  pair.first.link->send(transfer_of(bytes, sender), 5);
  wait_until([&] { return pair.second.offers == 2; });
}

// The sender's offers and the receiver's memory come in every order.
TEST_CASE("link: offers that were answered are not offered again") {
  for (int order = 0; order < 16; ++order) {
    LinkPair pair;
    Owner sender, receiver;
    std::vector<std::vector<std::byte>> sent, got(4, std::vector<std::byte>(8));
    for (int i = 0; i < 4; ++i) sent.push_back(pattern(8, i));
    std::size_t next_sent = 0, next_got = 0;
    const auto step = [&](bool sends) {
      sends ? pair.first.link->send(transfer_of(sent[next_sent++], sender), 1)
            : pair.second.link->receive(transfer_of(got[next_got++], receiver), 1);
    };
    for (int turn = 0; turn < 4; ++turn) {
      step((order >> turn & 1) != 0);
      if (turn == 1) pair.start();
    }
    while (next_sent < 4) step(true);
    while (next_got < 4) step(false);
    wait_until([&] { return receiver.received_count == 4 && sender.sent_count == 4; });
    CHECK((sent == got));
    std::vector<std::byte> room(8);
    CHECK_FALSE(pair.second.link->receive_offered(transfer_of(room, receiver), 1));
  }
}

TEST_CASE("link: a message longer than its memory ends the connection with both sizes") {
  Owner sender, receiver;
  auto bytes = pattern(100, 1);
  std::vector<std::byte> room(99);
  LinkPair pair;
  pair.start();
  pair.second.link->receive(transfer_of(room, receiver), 1);
  pair.first.link->send(transfer_of(bytes, sender), 1);
  wait_until([&] { return receiver.failures == 1 && pair.first.failed == 1; });
  CHECK(receiver.why.find("a message from rank 0: got 100 bytes, expected at most 99 bytes") !=
        std::string::npos);
  CHECK_THROWS_AS(pair.second.link->receive(transfer_of(room, receiver), 1), UsageError);
  CHECK_THROWS_AS(pair.first.link->send(transfer_of(bytes, sender), 1), IoError);
}

TEST_CASE("link: when one side ends, each transfer of the other fails once") {
  Owner first, second;
  auto bytes = pattern(100, 1);
  std::vector<std::byte> room(100);
  LinkPair pair;
  pair.start();
  pair.first.link->send(transfer_of(bytes, first), 1);
  pair.first.link->receive(transfer_of(room, first), 2);
  pair.second.link->fail(std::make_exception_ptr(std::runtime_error("it is over")));
  wait_until([&] { return first.failures == 2; });
  CHECK(first.why.find("the connection with rank 1 has ended") != std::string::npos);
  CHECK_FALSE(pair.first.link->is_open());
}

TEST_CASE("link: the memory of a cancelled receive is not used, and later messages arrive") {
  Owner sender, gone, receiver;
  auto bytes = pattern(1000, 1), later = pattern(500, 2);
  std::vector<std::byte> room(1000), untouched(1000), room_later(500);
  LinkPair pair;
  pair.start();
  pair.second.link->receive(transfer_of(room, gone), 1);
  pair.second.link->cancel(&gone);
  pair.first.link->send(transfer_of(bytes, sender), 1);
  pair.second.link->receive(transfer_of(room_later, receiver), 1);
  pair.first.link->send(transfer_of(later, sender), 1);
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == untouched));
  CHECK((room_later == later));
  CHECK(gone.received_count == 0);
}

TEST_CASE("link: cancelling an encrypted message ends a TLS connection") {
  Owner given_up, later, receiver;
  auto bytes = pattern(32 << 20, 1);
  std::vector<std::byte> room(bytes.size());
  LinkPair pair(/*encrypted=*/true);
  for (int i = 0; i < 4; ++i) pair.second.link->receive(transfer_of(room, receiver), 1);
  // The other side does not read yet, so the connection is full, and one encrypted record waits.
  pair.first.link->send(transfer_of(bytes, given_up), 1);
  pair.first.link->cancel(&given_up);
  CHECK_FALSE(pair.first.link->is_open());
  CHECK_THROWS_AS(pair.first.link->send(transfer_of(bytes, later), 1), IoError);
  pair.start();
  wait_until([&] { return receiver.failures == 4; });
}

TEST_CASE("link: a cancelled message is removed and the connection ended in one step") {
  Owner given_up, receiver;
  auto bytes = pattern(4 << 20, 1);
  std::vector<std::byte> room(bytes.size());
  std::vector<bool> changes;
  LinkPair pair;
  pair.first.events.on_write_interest_changed = [&](int, bool wants) { changes.push_back(wants); };
  pair.second.link->receive(transfer_of(room, receiver), 1);
  pair.first.link->advance();  // reads that the memory is ready
  pair.first.link->send(transfer_of(bytes, given_up), 1);
  REQUIRE((changes == std::vector<bool>{true}));  // a part of the message is still to be sent
  pair.first.link->cancel(&given_up);
  // An open link would report that it has nothing more to send.
  CHECK((changes == std::vector<bool>{true}));
  CHECK_FALSE(pair.first.link->is_open());
  CHECK(pair.first.failed == 1);
}

TEST_CASE("link: keys of TLS are replaced in the middle of messages") {
  Owner sender, receiver;
  auto bytes = pattern(3 << 20, 1);
  std::vector<std::vector<std::byte>> rooms(6, std::vector<std::byte>(bytes.size()));
  LinkPair pair(/*encrypted=*/true, /*key_lifetime_bytes=*/1 << 18);
  pair.start();
  for (auto& room : rooms) pair.second.link->receive(transfer_of(room, receiver), 1);
  for (std::size_t i = 0; i < rooms.size(); ++i)
    pair.first.link->send(transfer_of(bytes, sender), 1);
  wait_until([&] { return receiver.received_count == 6; });
  for (const auto& room : rooms) CHECK((room == bytes));
}

TEST_CASE("link: a fork that ends does not affect its parent's connections") {
  Owner sender, receiver;
  auto bytes = pattern(1000, 1);
  std::vector<std::byte> room(1000);
  auto pair = std::make_unique<LinkPair>();
  pair->start();
  const pid_t process = fork();
  if (process == 0) {
    pair->first.link->fail(std::make_exception_ptr(std::runtime_error("in the fork")));
    pair.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(process, &status, 0) == process);
  CHECK(status == 0);
  pair->second.link->receive(transfer_of(room, receiver), 1);
  pair->first.link->send(transfer_of(bytes, sender), 1);
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == bytes));
}

TEST_CASE("link: a loop that gets no thread says so") {
  LinkPair pair;
  const ThreadShortage shortage;
  CHECK(code_of([&] { pair.start(); }) == "io.thread");
}

TEST_CASE("link: cancelling a message halfway ends the connection") {
  Owner sender, receiver;
  auto bytes = pattern(64 << 20, 1);
  std::vector<std::byte> room(bytes.size());
  LinkPair pair;  // destroyed before the buffers
  pair.start();
  pair.second.link->receive(transfer_of(room, receiver), 1);
  std::thread sends([&] { pair.first.link->send(transfer_of(bytes, sender), 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // time to send its beginning
  pair.first.link->cancel(&sender);
  sends.join();
  wait_until([&] { return receiver.failures == 1 || receiver.received_count == 1; });
  CHECK(pair.first.link->is_open() == (receiver.received_count == 1));  // unless all of it was sent
}

}  // namespace process_link_test
