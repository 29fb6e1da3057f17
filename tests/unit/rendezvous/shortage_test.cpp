// A server that can open no more files for connections, and a server with more requests than it can
// answer.
#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "rendezvous/job_server.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"
#include "skip.h"
#include "unit/code_of.h"

namespace rendezvous_shortage_test {

namespace {

using namespace hasten;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

const std::string kToken = "the token of a shortage 0123456";

// A server in another process that may have at most 48 open files. It writes its port and then its
// reports, one per line.
class LimitedServer {
 public:
  LimitedServer() {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    process_ = fork();
    if (process_ == 0) serve(ends[1]);
    close(ends[1]);
    lines_.emplace(ends[0]);
    port_ = std::stoi(line());
  }
  LimitedServer(const LimitedServer&) = delete;
  LimitedServer& operator=(const LimitedServer&) = delete;
  ~LimitedServer() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Endpoint endpoint() const { return {.host = "127.0.0.1", .port = port_}; }
  std::string line() {
    std::string text;
    char letter = 0;
    while (read(lines_->get(), &letter, 1) == 1 && letter != '\n') text += letter;
    return text;
  }
  double cpu_seconds() const {
    clockid_t clock{};
    timespec time{};
    REQUIRE(clock_getcpuclockid(process_, &clock) == 0);
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

 private:
  [[noreturn]] static void serve(int out) {
    const rlimit few{.rlim_cur = 48, .rlim_max = 48};
    setrlimit(RLIMIT_NOFILE, &few);
    const auto write_line = [out](const std::string& text) {
      if (write(out, (text + "\n").c_str(), text.size() + 1) < 0) _exit(1);
    };
    const JobServer server({.token = kToken, .on_shortage = write_line});
    write_line(std::to_string(server.port()));
    while (true) pause();
  }

  pid_t process_ = -1;
  int port_ = 0;
  std::optional<Descriptor> lines_;
};

TEST_CASE("shortage: without a free file the server reports it, pauses, and continues") {
  LimitedServer server;
  std::vector<std::unique_ptr<StoreClient>> clients;
  // Each client uses one file of the server, until none is left.
  std::thread fills([&] {
    while (clients.size() < 60 &&
           code_of([&] {
             clients.push_back(std::make_unique<StoreClient>(server.endpoint(), kToken, 1500ms));
           }) == "none") {
    }
  });
  const std::string report = server.line();
  CHECK(report.find("Too many open files") != std::string::npos);
  const double before = server.cpu_seconds();
  std::this_thread::sleep_for(1s);
  CHECK(server.cpu_seconds() - before < 0.3);
  fills.join();
  REQUIRE(clients.size() > 10);
  CHECK(clients.size() < 60);
  clients.front()->set("those within", "go on");
  // A new client waits for the next free file.
  std::thread comes(
      [&] { CHECK(code_of([&] { StoreClient late(server.endpoint(), kToken, 30s); }) == "none"); });
  std::this_thread::sleep_for(100ms);
  clients.clear();
  comes.join();
}

// Makes send() fail with this error in this process from now on. Returns false if the kernel cannot
// do that.
bool make_send_fail(int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sendto, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = 4, .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_CASE("shortage: a connection survives a system without memory for its socket") {
  constexpr int kNoFilter = 77;
  for (const int error : {ENOBUFS, ENOMEM}) {
    CAPTURE(error);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::array<int, 2> ends{};
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) _exit(1);
      const SecureContext context(Side::client, kToken);
      Connection connection(ends[0], context);
      if (!make_send_fail(error)) _exit(kNoFilter);
      connection.advance();
      _exit(connection.is_open() && connection.has_unsent() ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter)
      return skip_test("this kernel has no seccomp filters");
    CHECK(status == 0);
  }
}

TEST_CASE("shortage: clients that never stop asking do not delay the coordinator") {
  JobServer server(
      {.token = kToken, .coordinator = CoordinatorSettings{.min_machines = 2, .max_machines = 2}});
  const Endpoint endpoint{.host = "127.0.0.1", .port = server.port()};
  const SecureContext context(Side::client, kToken);
  Connection agent(connect_to(endpoint, 5).socket, context);
  agent.send(kAgentGreeting);
  agent.send(nlohmann::json{
      {"kind", "join"},
      {"protocol", kProtocol},
      {"agent", "one"},
      {"machine_rank", 0},
      {"min_machines", 2},
      {"max_machines", 2},
      {"port", 1000},
      {"hosts_coordinator",
       true}}.dump());
  std::vector<std::string> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back("key " + std::to_string(i));
  StoreClient setting(endpoint, kToken, 10s);
  for (const std::string& key : keys) setting.set(key, "");
  std::atomic<bool> over = false;
  std::vector<std::thread> busy_clients;
  for (int i = 0; i < 4; ++i) {
    busy_clients.emplace_back([&] {
      Connection asks(connect_to(endpoint, 5).socket, context);
      asks.send(kStoreGreeting);
      asks.flush(Clock::now() + 10s);
      const std::string question = Packer()
                                       .number(1)
                                       .number(static_cast<std::int64_t>(StoreRequest::check))
                                       .texts(keys)
                                       .bytes();
      while (!over && asks.is_open()) {
        for (int each = 0; each < 100; ++each) asks.send(question);
        asks.flush(Clock::now() + 1s);
        while (asks.next()) {
        }
      }
    });
  }
  // Each second the agent gets a message that tells it to wait, or that the coordinator is alive.
  Clock::duration longest{};
  const auto end = Clock::now() + 6s;
  for (auto last = Clock::now(); last < end;) {
    const std::string code = code_of([&] { agent.receive(Clock::now() + 20s, "a message"); });
    REQUIRE(code == "none");
    longest = std::max(longest, Clock::now() - last);
    last = Clock::now();
  }
  over = true;
  for (std::thread& thread : busy_clients) thread.join();
  CHECK(longest < 3s);
}

}  // namespace

}  // namespace rendezvous_shortage_test
