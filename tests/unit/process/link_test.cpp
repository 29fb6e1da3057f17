#include "process/link.h"

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
#include "process/link_loop.h"

namespace process_link_test {

namespace {

using namespace hasten;

struct Owner : TransferOwner {
  std::atomic<int> received_count = 0, sent_count = 0, failures = 0;
  std::string why;
  void received(int) override { ++received_count; }
  void sent(int) override { ++sent_count; }
  void failed(const std::exception_ptr& error) override {
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

// Two ranks of one process, each with a loop of its own.
struct Two {
  struct Side {
    std::atomic<int> offers = 0;
    std::atomic<int> failed = 0;
    Link::Events events{.write_interest_changed =
                            [this](int, bool wants) { loop.set_write_interest(*link, wants); },
                        .offered = [this](int, std::uint64_t) { ++offers; },
                        .failed =
                            [this](int) {
                              ++failed;
                              loop.drop(*link);
                            }};
    std::unique_ptr<Link> link;
    LinkLoop loop;  // ends before the link
  };
  Side first, second;

  explicit Two(bool encrypted = false,
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

Transfer all_of(std::vector<std::byte>& memory, Owner& owner) {
  return {.at = memory.data(), .bytes = memory.size(), .owner = &owner};
}
std::vector<std::byte> pattern(std::size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  return bytes;
}

}  // namespace

TEST_CASE("link: messages of a slot arrive in order, whoever is first") {
  for (const bool receiver_first : {true, false}) {
    Owner sender, receiver;
    Two two;
    two.start();
    // One of no bytes, small ones, and some that no socket takes at once.
    std::vector<std::vector<std::byte>> sent, got;
    for (const std::size_t size : {0, 1, 24, 16360, 16361, 3 << 20, 5, 40 << 20}) {
      sent.push_back(pattern(size, static_cast<int>(sent.size())));
      got.emplace_back(size);
    }
    const auto send = [&] {
      for (auto& each : sent) two.first.link->send(all_of(each, sender), 7);
    };
    const auto receive = [&] {
      for (auto& each : got) two.second.link->receive(all_of(each, receiver), 7);
    };
    receiver_first ? receive() : send();
    receiver_first ? send() : receive();
    wait_until([&] { return receiver.received_count == std::ssize(got); });
    wait_until([&] { return sender.sent_count == std::ssize(sent); });
    for (std::size_t i = 0; i < sent.size(); ++i) CHECK((sent[i] == got[i]));
  }
}

TEST_CASE("link: slots do not wait for each other, and both directions go at once") {
  Owner owners[4];
  auto a = pattern(8 << 20, 1), b = pattern(8 << 20, 2);
  std::vector<std::byte> into_a(a.size()), into_b(b.size());
  Two two;
  two.start();
  two.first.link->send(all_of(a, owners[0]), 1);  // nobody receives it yet
  two.second.link->send(all_of(b, owners[1]), 2);
  two.first.link->receive(all_of(into_b, owners[2]), 2);
  wait_until([&] { return owners[2].received_count == 1; });
  CHECK(owners[0].sent_count == 0);
  two.second.link->receive(all_of(into_a, owners[3]), 1);
  wait_until([&] { return owners[3].received_count == 1; });
  CHECK((into_a == a));
  CHECK((into_b == b));
}

TEST_CASE("link: a message that is offered is received by who asks whether there is one") {
  Owner sender, receiver;
  auto bytes = pattern(100, 3);
  std::vector<std::byte> room(100);
  Two two;
  two.start();
  CHECK_FALSE(two.second.link->receive_offered(all_of(room, receiver), 5));
  two.first.link->send(all_of(bytes, sender), 5);
  wait_until([&] { return two.second.offers == 1; });
  CHECK_FALSE(two.second.link->receive_offered(all_of(room, receiver), 6));
  CHECK(two.second.link->receive_offered(all_of(room, receiver), 5));
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == bytes));
  // The next one of the slot is an offer of its own.
  CHECK_FALSE(two.second.link->receive_offered(all_of(room, receiver), 5));
  two.first.link->send(all_of(bytes, sender), 5);
  wait_until([&] { return two.second.offers == 2; });
}

// The sender's offers and the receiver's memory cross on their way in each of their orders.
TEST_CASE("link: offers that were answered already are not offered again") {
  for (int order = 0; order < 16; ++order) {
    Two two;
    Owner sender, receiver;
    std::vector<std::vector<std::byte>> sent, got(4, std::vector<std::byte>(8));
    for (int i = 0; i < 4; ++i) sent.push_back(pattern(8, i));
    std::size_t next_sent = 0, next_got = 0;
    const auto step = [&](bool sends) {
      sends ? two.first.link->send(all_of(sent[next_sent++], sender), 1)
            : two.second.link->receive(all_of(got[next_got++], receiver), 1);
    };
    for (int turn = 0; turn < 4; ++turn) {
      step((order >> turn & 1) != 0);
      if (turn == 1) two.start();
    }
    while (next_sent < 4) step(true);
    while (next_got < 4) step(false);
    wait_until([&] { return receiver.received_count == 4 && sender.sent_count == 4; });
    CHECK((sent == got));
    std::vector<std::byte> room(8);
    CHECK_FALSE(two.second.link->receive_offered(all_of(room, receiver), 1));
  }
}

TEST_CASE(
    "link: a message longer than the memory for it ends the connection, and says both sizes") {
  Owner sender, receiver;
  auto bytes = pattern(100, 1);
  std::vector<std::byte> room(99);
  Two two;
  two.start();
  two.second.link->receive(all_of(room, receiver), 1);
  two.first.link->send(all_of(bytes, sender), 1);
  wait_until([&] { return receiver.failures == 1 && two.first.failed == 1; });
  CHECK(receiver.why.find("a message from rank 0: got 100 bytes, expected at most 99 bytes") !=
        std::string::npos);
  CHECK_THROWS_AS(two.second.link->receive(all_of(room, receiver), 1), UsageError);
  CHECK_THROWS_AS(two.first.link->send(all_of(bytes, sender), 1), IoError);
}

TEST_CASE("link: when one side ends, the transfers of the other fail, once each") {
  Owner first, second;
  auto bytes = pattern(100, 1);
  std::vector<std::byte> room(100);
  Two two;
  two.start();
  two.first.link->send(all_of(bytes, first), 1);
  two.first.link->receive(all_of(room, first), 2);
  two.second.link->fail(std::make_exception_ptr(std::runtime_error("it is over")));
  wait_until([&] { return first.failures == 2; });
  CHECK(first.why.find("the connection with rank 1 has ended") != std::string::npos);
  CHECK_FALSE(two.first.link->is_open());
}

TEST_CASE("link: memory that is forgotten is not touched any more, and later messages arrive") {
  Owner sender, gone, receiver;
  auto bytes = pattern(1000, 1), later = pattern(500, 2);
  std::vector<std::byte> room(1000), untouched(1000), room_later(500);
  Two two;
  two.start();
  two.second.link->receive(all_of(room, gone), 1);
  two.second.link->cancel(&gone);
  two.first.link->send(all_of(bytes, sender), 1);
  two.second.link->receive(all_of(room_later, receiver), 1);
  two.first.link->send(all_of(later, sender), 1);
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == untouched));
  CHECK((room_later == later));
  CHECK(gone.received_count == 0);
}

TEST_CASE("link: TLS too ends the connection when a message is given up that it has encrypted") {
  Owner given_up, later, receiver;
  auto bytes = pattern(32 << 20, 1);
  std::vector<std::byte> room(bytes.size());
  Two two(/*encrypted=*/true);
  for (int i = 0; i < 4; ++i) two.second.link->receive(all_of(room, receiver), 1);
  // Nobody reads yet, so the connection is full, and one record waits encrypted.
  two.first.link->send(all_of(bytes, given_up), 1);
  two.first.link->cancel(&given_up);
  CHECK_FALSE(two.first.link->is_open());
  CHECK_THROWS_AS(two.first.link->send(all_of(bytes, later), 1), IoError);
  two.start();
  wait_until([&] { return receiver.failures == 4; });
}

TEST_CASE("link: keys of TLS are replaced in the middle of messages") {
  Owner sender, receiver;
  auto bytes = pattern(3 << 20, 1);
  std::vector<std::vector<std::byte>> rooms(6, std::vector<std::byte>(bytes.size()));
  Two two(/*encrypted=*/true, /*key_lifetime_bytes=*/1 << 18);
  two.start();
  for (auto& room : rooms) two.second.link->receive(all_of(room, receiver), 1);
  for (std::size_t i = 0; i < rooms.size(); ++i) two.first.link->send(all_of(bytes, sender), 1);
  wait_until([&] { return receiver.received_count == 6; });
  for (const auto& room : rooms) CHECK((room == bytes));
}

TEST_CASE("link: a fork that ends has no part in the connections of the process it comes from") {
  Owner sender, receiver;
  auto bytes = pattern(1000, 1);
  std::vector<std::byte> room(1000);
  auto two = std::make_unique<Two>();
  two->start();
  const pid_t process = fork();
  if (process == 0) {
    two->first.link->fail(std::make_exception_ptr(std::runtime_error("in the fork")));
    two.reset();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(process, &status, 0) == process);
  CHECK(status == 0);
  two->second.link->receive(all_of(room, receiver), 1);
  two->first.link->send(all_of(bytes, sender), 1);
  wait_until([&] { return receiver.received_count == 1; });
  CHECK((room == bytes));
}

TEST_CASE("link: a message that is forgotten in its middle ends the connection") {
  Owner sender, receiver;
  auto bytes = pattern(64 << 20, 1);
  std::vector<std::byte> room(bytes.size());
  Two two;  // ends before what it writes to
  two.start();
  two.second.link->receive(all_of(room, receiver), 1);
  std::thread sends([&] { two.first.link->send(all_of(bytes, sender), 1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // its beginning goes
  two.first.link->cancel(&sender);
  sends.join();
  wait_until([&] { return receiver.failures == 1 || receiver.received_count == 1; });
  CHECK(two.first.link->is_open() == (receiver.received_count == 1));  // or it was over already
}

}  // namespace process_link_test
