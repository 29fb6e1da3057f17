// Many valid clients at once, and unauthenticated clients that try to keep them out.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "rendezvous/job_server.h"
#include "rendezvous/pending_connections.h"
#include "rendezvous/store_client.h"
#include "unit/code_of.h"

namespace rendezvous_many_clients_test {

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

const std::string kToken = "the token of a crowd 0123456789";
constexpr uid_t kNobody = 65534;

bool raise_file_limit(rlim_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= count) return true;
  if (limit.rlim_max < count) return false;
  limit.rlim_cur = count;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

int connected_socket(int port) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return file;
  close(file);
  return -1;
}

// A process of another user that connects endlessly and keeps its last 300 connections open. It
// writes to a pipe after every 100 connections. Every other connection sends noise.
class FloodingProcess {
 public:
  explicit FloodingProcess(int port) {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const rlimit room{.rlim_cur = 400, .rlim_max = 400};
    process_ = fork();
    if (process_ == 0) {
      setrlimit(RLIMIT_NOFILE, &room);
      if (geteuid() == 0 && setuid(kNobody) != 0) _exit(1);
      connect_without_end(port, ends[1]);
    }
    close(ends[1]);
    progress_.emplace(ends[0]);
  }
  FloodingProcess(const FloodingProcess&) = delete;
  FloodingProcess& operator=(const FloodingProcess&) = delete;
  ~FloodingProcess() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  // Waits until it has made this many connections since its start.
  void wait_for(int connections) {
    char hundred = 0;
    while (count_ < connections) {
      REQUIRE(read(progress_->get(), &hundred, 1) == 1);
      count_ += 100;
    }
  }

 private:
  [[noreturn]] static void connect_without_end(int port, int progress) {
    std::array<int, 300> held{};
    held.fill(-1);
    for (std::size_t count = 1;; ++count) {
      int& place = held[count % held.size()];
      if (place >= 0) close(place);
      while ((place = connected_socket(port)) < 0) usleep(1000);
      if (count % 2 == 0) send(place, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count % 100 == 0 && write(progress, "", 1) != 1) _exit(0);
    }
  }

  pid_t process_ = -1;
  std::optional<Descriptor> progress_;
  int count_ = 0;
};

// Runs `count` clients at once. Each sets its key and waits for the key of the last client. Returns
// how often each outcome occurred.
std::map<std::string, int> connect_clients(int port, int count, const std::string& group) {
  std::mutex mutex;
  std::map<std::string, int> outcomes;
  std::atomic<bool> go = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      while (!go) std::this_thread::sleep_for(1ms);
      const std::string outcome = code_of([&] {
        StoreClient store({.host = "127.0.0.1", .port = port}, kToken, 60s);
        store.set(group + std::to_string(rank), "here");
        if (store.add(group + "count", 1) == count) store.set(group + "complete", "yes");
        store.wait({group + "complete"}, 60s);
      });
      const std::lock_guard<std::mutex> lock(mutex);
      ++outcomes[outcome];
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST_CASE("many clients: hundreds of clients with the token that connect at once all meet") {
  if (!raise_file_limit(2000)) return;
  JobServer server({.token = kToken});
  for (int round = 0; round < 3; ++round)
    CHECK(connect_clients(server.port(), 600, std::to_string(round)) ==
          std::map<std::string, int>{{"none", 600}});
}

TEST_CASE(
    "many clients: a flood of ten thousand connections does not prevent ranks from connecting") {
  if (!raise_file_limit(1500)) return;
  JobServer server({.token = kToken});
  StoreClient early({.host = "127.0.0.1", .port = server.port()}, kToken, 10s);
  FloodingProcess flood(server.port());
  flood.wait_for(2000);
  for (int round = 0; round < 4; ++round) {
    CHECK(connect_clients(server.port(), 40, std::to_string(round)) ==
          std::map<std::string, int>{{"none", 40}});
    flood.wait_for(2000 * (round + 2));
  }
  CHECK(connect_clients(server.port(), 40, "last") == std::map<std::string, int>{{"none", 40}});
  CHECK(early.check({"lastcomplete"}));
}

TEST_CASE("many clients: connections from before the first rank make room for it") {
  if (!raise_file_limit(1500)) return;
  JobServer server({.token = kToken});
  std::vector<std::unique_ptr<Descriptor>> held;
  for (int i = 0; i < 400; ++i)
    held.push_back(std::make_unique<Descriptor>(connected_socket(server.port())));
  CHECK(connect_clients(server.port(), 10, "group") == std::map<std::string, int>{{"none", 10}});
}

TEST_CASE("pending connections: the oldest one of the busiest address is evicted") {
  PendingConnections pending;
  const auto now = Clock::now();
  pending.add(1, "10.0.0.1", now);
  for (int id = 2; id < 200; ++id) pending.add(id, "10.0.0.66", now);
  CHECK_FALSE(pending.connection_to_evict());
  for (int id = 200; id <= 256; ++id) pending.add(id, "10.0.1." + std::to_string(id - 199), now);
  CHECK(pending.connection_to_evict() == 2);
  pending.remove(2);
  CHECK_FALSE(pending.connection_to_evict());
}

TEST_CASE("pending connections: one with a valid first message is evicted last") {
  PendingConnections pending;
  const auto now = Clock::now();
  for (int id = 1; id <= 256; ++id) {
    pending.add(id, "10.0.0.1", now);
    if (id <= 250) pending.mark_valid(id);
  }
  CHECK(pending.connection_to_evict() == 251);
  for (int id = 251; id <= 256; ++id) pending.mark_valid(id);
  CHECK(pending.connection_to_evict() == 1);
}

TEST_CASE("pending connections: a handshake has a time limit") {
  PendingConnections pending;
  const auto now = Clock::now();
  pending.add(1, "10.0.0.1", now);
  pending.add(2, "10.0.0.2", now + 3s);
  CHECK(pending.expired(now + 5s).empty());
  CHECK(pending.expired(now + 6s) == std::vector<int>{1});
  CHECK(pending.expired(now + 9s) == std::vector<int>{1, 2});
  CHECK(pending.next_deadline() == now + 5s);
}

}  // namespace

}  // namespace rendezvous_many_clients_test
