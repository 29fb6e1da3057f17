#include "rendezvous/mesh.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/mesh_sockets.h"
#include "skip.h"

namespace rendezvous_mesh_test {

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";
using Streams = std::vector<std::unique_ptr<ByteStream>>;

// Exchanges like a job's store, for ranks that are threads of one process.
class LocalExchange {
 public:
  explicit LocalExchange(std::int64_t size) : size_(size) {}

  Exchange exchange_of(std::int64_t rank) {
    return [this, rank](const std::string& key, const std::string& own) {
      std::unique_lock lock(mutex_);
      values_[key][rank] = own;
      changed_.notify_all();
      changed_.wait(lock, [&] { return std::ssize(values_[key]) == size_; });
      std::vector<std::string> all;
      for (const auto& [each, word] : values_[key]) all.push_back(word);
      return all;
    };
  }

 private:
  std::int64_t size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::map<std::int64_t, std::string>> values_;
};

struct Result {
  Streams streams;
  std::string code, text;
};

// Runs each rank in a thread. `change` may make a rank different from the others.
template <class Change>
std::vector<Result> connect_ranks(std::int64_t size, Clock::duration limit, const Change& change) {
  LocalExchange local_exchange(size);
  std::vector<Result> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      MeshOptions options{.rank = rank, .size = size, .secret = kSecret};
      const bool takes_part = change(options);
      Result& result = results[static_cast<std::size_t>(rank)];
      try {
        const Exchange exchange = local_exchange.exchange_of(rank);
        if (takes_part) {
          result.streams = connect_mesh(options, exchange, limit);
        } else {  // publishes its address and ends
          exchange("start", R"({"nonce": "none", "encrypt": true, "machine": "none"})");
          exchange("address", R"({"local": "none", "address": "127.0.0.1", "port": 1})");
        }
      } catch (const Error& error) {
        result.code = error.code();
        result.text = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

bool same_machine(MeshOptions&) { return true; }
// The mesh treats two addresses of the loopback interface as two machines.
bool other_machines(MeshOptions& options) {
  options.address = str("127.0.0.", options.rank + 1);
  return true;
}

void write_all(ByteStream& stream, std::int64_t number) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&number);
  REQUIRE(stream.write(bytes, sizeof number) == sizeof number);
}

std::int64_t read_all(ByteStream& stream) {
  std::int64_t number = 0;
  auto* const room = reinterpret_cast<std::byte*>(&number);
  std::size_t got = 0;
  for (int trial = 0; trial < 5000 && got < sizeof number; ++trial) {
    const auto now = stream.read(room + got, sizeof number - got);
    REQUIRE(now >= 0);
    got += static_cast<std::size_t>(now);
    if (now == 0) std::this_thread::sleep_for(1ms);
  }
  REQUIRE(got == sizeof number);
  return number;
}

// Each rank writes to every other rank and reads its message.
void check_connections(const std::vector<Result>& results) {
  const auto size = results.size();
  for (std::size_t rank = 0; rank < size; ++rank) {
    INFO(results[rank].text);
    REQUIRE(results[rank].streams.size() == size);
    CHECK(results[rank].streams[rank] == nullptr);
    for (std::size_t other = 0; other < size; ++other) {
      if (other == rank) continue;
      write_all(*results[rank].streams[other], static_cast<std::int64_t>(100 * rank + other));
    }
  }
  for (std::size_t rank = 0; rank < size; ++rank) {
    for (std::size_t other = 0; other < size; ++other) {
      if (other == rank) continue;
      CHECK(read_all(*results[rank].streams[other]) ==
            static_cast<std::int64_t>(100 * other + rank));
    }
  }
}

// The names of this test's local listening sockets.
std::set<std::string> listening_names() {
  std::set<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    const auto name = line.find("@hasten ");
    std::istringstream fields(line);
    std::string number, references, protocol, flags;
    fields >> number >> references >> protocol >> flags;
    if (name != line.npos && flags == "00010000") names.insert(line.substr(name + 1));
  }
  return names;
}

// The listening TCP ports of loopback addresses.
std::set<int> listening_ports() {
  std::set<int> ports;
  std::ifstream file("/proc/net/tcp");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state;
    fields >> number >> local >> remote >> state;
    if (state == "0A") ports.insert(std::stoi(local.substr(local.find(':') + 1), nullptr, 16));
  }
  return ports;
}

// The number of listening sockets of this process.
int count_own_listeners() {
  int count = 0;
  for (int file = 0; file < 1024; ++file) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0) count += listens;
  }
  return count;
}

// Connects like connect_locally(), but to any listener.
int connected_to(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0) return socket;
  close(socket);
  return -1;
}

// A process of another user of the machine. It connects to every new listener and sends wrong bytes
// or nothing, until it is killed. It writes its number of connections to the pipe.
class FloodingProcess {
 public:
  FloodingProcess() {
    const auto names = listening_names();
    const auto ports = listening_ports();
    REQUIRE(pipe(progress_) == 0);
    process_ = fork();
    if (process_ == 0) attack(names, ports);
    close(progress_[1]);
  }
  ~FloodingProcess() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    close(progress_[0]);
  }
  // Waits until it has made this many connections.
  void wait_for(std::int64_t count) {
    std::int64_t made = 0;
    while (made < count) REQUIRE(read(progress_[0], &made, sizeof made) == sizeof made);
  }

 private:
  [[noreturn]] void attack(const std::set<std::string>& names, const std::set<int>& ports) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    std::vector<int> open;
    std::int64_t made = 0;
    while (true) {
      const auto connect_once = [&](int socket) {
        if (socket < 0) return;
        if (made % 2 == 0) (void)send(socket, "\0\0\0\0\0\0\0\1", 8, MSG_NOSIGNAL | MSG_DONTWAIT);
        open.push_back(socket);
        if (++made % 100 == 0) (void)write(progress_[1], &made, sizeof made);
        if (open.size() < 400) return;
        for (const int each : open) close(each);
        open.clear();
      };
      std::set<std::string> new_names;
      std::set<int> new_ports;
      std::ranges::set_difference(listening_names(), names,
                                  std::inserter(new_names, new_names.end()));
      std::ranges::set_difference(listening_ports(), ports,
                                  std::inserter(new_ports, new_ports.end()));
      for (int again = 0; again < 100; ++again) {
        for (const std::string& name : new_names) connect_once(connected_to(name));
        for (const int port : new_ports) {
          for (const char* const address : {"127.0.0.1", "127.0.0.2", "127.0.0.3"})
            connect_once(begin_connection(address, port));
        }
      }
    }
  }

  pid_t process_ = -1;
  int progress_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("mesh: ranks of one machine use local sockets, and nothing listens afterwards") {
  const auto results = connect_ranks(4, 20s, same_machine);
  check_connections(results);
  CHECK(count_own_listeners() == 0);
}

TEST_CASE("mesh: ranks of several machines use TLS, or no encryption if requested") {
  for (const bool encrypt : {true, false}) {
    const auto results = connect_ranks(3, 20s, [&](MeshOptions& options) {
      options.encrypt = encrypt;
      return other_machines(options);
    });
    check_connections(results);
    CHECK((dynamic_cast<TlsStream*>(results[0].streams[1].get()) != nullptr) == encrypt);
    CHECK(count_own_listeners() == 0);
  }
}

TEST_CASE("mesh: two ranks of one machine and one of another are connected") {
  const auto results = connect_ranks(3, 20s, [](MeshOptions& options) {
    if (options.rank == 2) options.address = "127.0.0.2";
    return true;
  });
  check_connections(results);
  CHECK(dynamic_cast<PlainStream*>(results[0].streams[1].get()) != nullptr);
  CHECK(dynamic_cast<TlsStream*>(results[0].streams[2].get()) != nullptr);
}

TEST_CASE("mesh: a rank with a wrong secret is connected to no other") {
  const auto results = connect_ranks(3, 2s, [](MeshOptions& options) {
    if (options.rank == 1) options.secret = "another secret of the same length";
    return other_machines(options);
  });
  for (const Result& result : results) CHECK(result.code == "process.rank-missing");
  CHECK(results[0].text.find("rank 1") != std::string::npos);
  CHECK(results[0].text.find("rank 2") == std::string::npos);
}

TEST_CASE("mesh: a missing rank is named") {
  const auto results = connect_ranks(3, 3s, [](MeshOptions& options) { return options.rank != 2; });
  CHECK(results[0].code == "process.rank-missing");
  CHECK(results[0].text.find("no connection with rank 2") != std::string::npos);
}

TEST_CASE("mesh: ranks that differ in encryption refuse each other") {
  const auto results = connect_ranks(2, 5s, [](MeshOptions& options) {
    options.encrypt = options.rank == 0;
    return other_machines(options);
  });
  for (const Result& result : results) CHECK(result.code == "process.encryption");
  CHECK(results[1].text.find("no on rank 1, yes on rank 0") != std::string::npos);
}

TEST_CASE("mesh: no other process takes the place of a rank that has ended on this machine") {
  if (geteuid() != 0) return skip_test("only root can start a process of another user");
  const std::string name = str("hasten mesh test ", getpid());
  int told[2];
  REQUIRE(pipe(told) == 0);
  const pid_t other_process = fork();
  if (other_process == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    const auto listener = listen_locally(name);
    (void)write(told[1], "l", 1);
    pause();
  }
  char word = 0;
  REQUIRE(read(told[0], &word, 1) == 1);
  errno = 0;
  CHECK(connect_locally(name) == -1);
  CHECK(errno == EPERM);
  kill(other_process, SIGKILL);
  waitpid(other_process, nullptr, 0);
  for (const int end : told) close(end);
}

TEST_CASE("mesh: 10,000 connections of another user change nothing") {
  if (geteuid() != 0) {
    return skip_test("only root can start a process of another user");
  }
  for (const auto& change : {same_machine, other_machines}) {
    FloodingProcess flood;
    // Rank 2 starts only after the flooding process has connected to the first listeners.
    LocalExchange local_exchange(3);
    std::vector<Result> results(3);
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        MeshOptions options{.rank = rank, .size = 3, .secret = kSecret};
        change(options);
        const Exchange exchange = local_exchange.exchange_of(rank);
        const auto delayed = [&](const std::string& key, const std::string& own) {
          auto values = exchange(key, own);
          if (rank == 2 && key == "address") flood.wait_for(10000);
          return values;
        };
        try {
          results[static_cast<std::size_t>(rank)].streams = connect_mesh(options, delayed, 60s);
        } catch (const Error& error) {
          results[static_cast<std::size_t>(rank)].text = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    check_connections(results);
  }
}

}  // namespace rendezvous_mesh_test
