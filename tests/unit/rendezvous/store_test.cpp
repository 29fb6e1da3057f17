// The keys and values of a job over real sockets, and clients without the token.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "processor_time.h"
#include "rendezvous/job_server.h"
#include "rendezvous/store_client.h"
#include "unit/code_of.h"

namespace rendezvous_store_test {

namespace {

using hasten::code_of;
using hasten::Endpoint;
using hasten::processor_seconds;
using namespace hasten::rendezvous;
using namespace std::chrono_literals;

const std::string kToken = "a token for the tests";

Endpoint at(const JobServer& server) { return {.host = "127.0.0.1", .port = server.port()}; }

TEST_CASE("store: it has every operation of c10d's stores") {
  const std::string token = new_token();
  CHECK(token.size() == 64);
  CHECK(token != new_token());
  JobServer server({.token = token});
  StoreClient store(at(server), token, 5s);
  store.set("a", std::string("1\0 2", 4));
  CHECK(store.get({"a"}, 0ms) == std::vector<std::string>{std::string("1\0 2", 4)});
  CHECK(store.add("n", 3) == 3);
  CHECK(store.add("n", -5) == -2);
  CHECK(store.get({"n", "a"}, 0ms)[0] == "-2");
  CHECK(store.check({"a", "n"}));
  CHECK_FALSE(store.check({"a", "none"}));
  CHECK(store.count() == 2);
  CHECK(store.list() == std::vector<std::string>{"a", "n"});
  store.append("a", "!");
  CHECK(store.get({"a"}, 0ms)[0].size() == 5);
  CHECK(store.compare_set("c", "", "new") == "new");
  CHECK(store.compare_set("c", "old", "newer") == "new");
  CHECK(store.compare_set("c", "new", "newer") == "newer");
  CHECK(store.compare_set("missing", "expected", "x") == "expected");
  CHECK_FALSE(store.check({"missing"}));
  CHECK(store.erase("c"));
  CHECK_FALSE(store.erase("c"));
  CHECK(code_of([&] { store.add("a", 1); }) == "rendezvous.store");
  CHECK(store.get({"a"}, 0ms)[0].size() == 5);  // the connection still works
  const std::string large(5 << 20, 'x');
  store.set("large", large);
  CHECK(store.get({"large"}, 0ms)[0] == large);
}

TEST_CASE("store: a waiter is answered when the key comes, or gets the missing keys") {
  JobServer server({.token = kToken});
  StoreClient waiting(at(server), kToken, 5s), setting(at(server), kToken, 5s);
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    setting.set("x", "1");
    setting.set("y", "2");
  });
  CHECK(waiting.get({"x", "y"}, 10s) == std::vector<std::string>{"1", "2"});
  later.join();
  std::string text;
  try {
    waiting.wait({"x", "z1", "z2"}, 30ms);
  } catch (const hasten::Error& error) {
    CHECK(error.code() == "rendezvous.time");
    text = error.what();
  }
  CHECK(text.find("z1, z2") != std::string::npos);
  CHECK(waiting.check({"x"}));
  server.clear();
  while (setting.count() != 0) {
  }
}

// Stops this process once, and sleeps before and after that.
void stop_between_sleeps() {
  std::this_thread::sleep_for(300ms);
  kill(getpid(), SIGSTOP);
  // Sleeps in short parts, because a sleep also passes while the process is stopped.
  for (int part = 0; part < 5; ++part) std::this_thread::sleep_for(100ms);
}

// Waits for a key while the process is stopped once. Returns the code of the error.
std::string wait_while_stopped() {
  JobServer server({.token = kToken});
  StoreClient waiting(at(server), kToken, 20s), setting(at(server), kToken, 20s);
  std::thread later([&] {
    stop_between_sleeps();
    setting.set("key", "value");
  });
  const std::string code = code_of([&] { waiting.wait({"key"}, 5s); });
  later.join();
  return code;
}

// Connects to a server that starts after the process was stopped once. Returns the code of the
// error.
std::string connect_while_stopped() {
  const int port = JobServer({.token = kToken}).port();
  std::optional<JobServer> server;
  std::thread later([&] {
    stop_between_sleeps();
    server.emplace(ServerOptions{.port = port, .token = kToken});
  });
  const std::string code =
      code_of([&] { StoreClient client({.host = "127.0.0.1", .port = port}, kToken, 5s); });
  later.join();
  return code;
}

TEST_CASE("store: a rank that is suspended while it connects or waits for a key continues") {
  for (const auto call : {wait_while_stopped, connect_while_stopped}) {
    const pid_t job = fork();
    if (job == 0) {
      try {
        _exit(call() == "none" ? 0 : 1);
      } catch (...) {
        _exit(2);
      }
    }
    int status = 0;
    REQUIRE(waitpid(job, &status, WUNTRACED) == job);
    REQUIRE(WIFSTOPPED(status));
    std::this_thread::sleep_for(6s);  // longer than the limit
    kill(job, SIGCONT);
    REQUIRE(waitpid(job, &status, 0) == job);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("store: a wrong or missing token, noise and silence disturb no other client") {
  JobServer server({.token = kToken});
  StoreClient friendly(at(server), kToken, 5s);
  for (int i = 0; i < 20; ++i) {
    CHECK(code_of([&] { StoreClient client(at(server), "another token that is long", 5s); }) ==
          "rendezvous.refused");
  }
  const std::vector<std::string> noises = {"GET / HTTP/1.0\r\n\r\n", std::string(4000, '\x16'),
                                           "\x16\x03\x01", std::string(100, '\0')};
  for (const std::string& noise : noises) {
    const auto result = connect_to(at(server), 1);
    REQUIRE(result.socket >= 0);
    REQUIRE(send(result.socket, noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
    if (noise.size() > 10) {
      char answer[1024];
      ssize_t got = 1;
      std::string all;
      const auto deadline = Clock::now() + 2s;
      while (got != 0 && Clock::now() < deadline) {
        got = recv(result.socket, answer, sizeof answer, MSG_DONTWAIT);
        if (got > 0) all.append(answer, static_cast<std::size_t>(got));
        if (got < 0 && errno != EAGAIN) break;
      }
      CHECK(all.size() < 16);  // at most an alert
      CHECK(Clock::now() < deadline);
    }
    close(result.socket);
  }
  friendly.set("still", "here");
  CHECK(friendly.check({"still"}));
}

TEST_CASE("store: a server without the token is not trusted either") {
  JobServer server({.token = "the token of another job"});
  CHECK(code_of([&] { StoreClient client(at(server), kToken, 2s); }) == "rendezvous.refused");
}

TEST_CASE("store: a port without a listener, and the port of another service, are errors") {
  int port = 0;
  {
    JobServer server({.token = kToken});
    port = server.port();
    CHECK(code_of([&] { JobServer second({.port = port, .token = kToken}); }) ==
          "rendezvous.port-taken");
  }
  const auto began = Clock::now();
  CHECK(code_of([&] { StoreClient client({.host = "127.0.0.1", .port = port}, kToken, 300ms); }) ==
        "rendezvous.connect");
  CHECK(Clock::now() - began < 2s);
}

TEST_CASE("sockets: a reserved port goes to no other process, and can be listened on") {
  ReservedPort port(true);
  const ReservedPort other(true);
  CHECK(port.number() != other.number());
  const int listener = listen_on(true, port.number());
  CHECK(listener >= 0);
  CHECK(connect_to({.host = "127.0.0.1", .port = port.number()}, 1).socket >= 0);
  close(listener);
}

TEST_CASE("store: a message that would be too long is refused before it is built") {
  std::vector<std::string> answers;
  StoreTable table([&](int, const std::string& message) { answers.push_back(message); });
  const auto ask = [&](const Packer& request) {
    table.handle(1, request.bytes(), Clock::now());
    Unpacker fields(answers.back());
    fields.number();  // the request's number
    return static_cast<StoreStatus>(fields.number());
  };
  const auto request = [](StoreRequest kind) {
    Packer packer;
    packer.number(1).number(static_cast<std::int64_t>(kind));
    return packer;
  };
  const std::string large(kMaxMessageBytes / 2, 'x');
  CHECK(ask(request(StoreRequest::set).text("a").text(large)) == StoreStatus::done);
  // The answer to this short request would be longer than a message may be.
  const std::vector<std::string> again(100, "a");
  CHECK(ask(request(StoreRequest::get).number(0).texts(again)) == StoreStatus::refused);
  CHECK(ask(request(StoreRequest::get).number(0).texts({"a"})) == StoreStatus::done);
  CHECK(ask(request(StoreRequest::append).text("a").text(large)) == StoreStatus::refused);
  CHECK(ask(request(StoreRequest::append).text("a").text("y")) == StoreStatus::done);
}

// A launcher's side of the protocol.
struct Agent {
  SecureContext context{Side::client, kToken};
  Connection connection;

  Agent(const JobServer& server, int rank) : connection(connect_to(at(server), 5).socket, context) {
    connection.send("agent");
    const nlohmann::json join = {
        {"kind", "join"},    {"protocol", kProtocol},          {"host", "node"},
        {"program", "p"},    {"machine_rank", rank},           {"min_machines", 2},
        {"max_machines", 2}, {"hosts_coordinator", rank == 0}, {"port", 1000}};
    connection.send(join.dump());
    connection.flush(Clock::now() + 10s);
  }
  // The next message of this kind. Skips all other messages.
  nlohmann::json receive(const std::string& kind) {
    const auto deadline = Clock::now() + 10s;  // covers all messages: keep-alives come every second
    while (true) {
      REQUIRE(Clock::now() < deadline);
      const auto message = nlohmann::json::parse(connection.receive(deadline, "a message"));
      if (message.at("kind") == kind) return message;
    }
  }
};

TEST_CASE("job server: a client that sends unreadable messages is lost at once") {
  for (const char* noise : {"no JSON", R"([1])", R"({"kind": "failed", "code": "seven"})",
                            R"({"kind": "leaving", "signal": 1e300})"}) {
    CAPTURE(noise);
    JobServer server(
        {.token = kToken,
         .coordinator = CoordinatorSettings{
             .min_machines = 2, .max_machines = 2, .max_restarts = 1, .keep_alive_timeout = 600}});
    Agent first(server, 0), second(server, 1);
    first.receive("round");
    second.receive("round");
    second.connection.send(noise);
    const std::string reason = first.receive("stop").at("reason");
    CHECK(reason.find("is lost: it sent a message that this version of hasten cannot read") !=
          std::string::npos);
    CHECK(code_of([&] { second.receive("stop"); }) == "rendezvous.lost");
  }
}

TEST_CASE("job server: an idle server leaves the cores to the training") {
  const CoordinatorSettings two_machines{
      .min_machines = 2, .max_machines = 2, .max_restarts = 0, .keep_alive_timeout = 600};
  for (const auto& coordinator :
       {std::optional<CoordinatorSettings>(), std::optional(two_machines)}) {
    JobServer server({.token = kToken, .coordinator = coordinator});
    StoreClient idle(at(server), kToken, 5s);
    idle.set("key", "value");
    std::thread waits([&] {
      StoreClient store(at(server), kToken, 5s);
      code_of([&] { store.get({"a key that does not come"}, 2s); });
    });
    std::this_thread::sleep_for(1200ms);  // longer than the interval of clock checks
    const double before = processor_seconds();
    std::this_thread::sleep_for(500ms);
    const double took = processor_seconds() - before;
    waits.join();
    CHECK(took < 0.05);
  }
}

}  // namespace

}  // namespace rendezvous_store_test
