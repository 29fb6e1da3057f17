#include "launch/several_machines.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/digest.h"
#include "launch/job.h"

namespace hasten {
namespace {

using nlohmann::json;
using rendezvous::Clock;
using namespace std::chrono_literals;

constexpr auto kSignOfLife = 1s;
constexpr auto kBetweenAttempts = 500ms;  // to connect
constexpr auto kBeforeTelling = 1s;       // a wait of less is no news
constexpr auto kTellAgain = 30s;

rendezvous::Settings settings_of(const LaunchConfiguration& run) {
  const Kwargs& conf = run.options.rdzv_conf;
  return {.min_machines = run.machines.least,
          .max_machines = run.machines.most,
          .max_restarts = run.options.max_restarts,
          .join_timeout = conf.number("join_timeout", 600),
          .last_call = conf.number("last_call_timeout", 30),
          .keep_alive_timeout = conf.number("keep_alive_timeout", 5),
          .same_program = conf.flag("same_program", true)};
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// What ranks print need not be UTF-8, which JSON is.
std::string bytes_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The machine they meet at says so by its rank; without ranks by its address.
bool is_host(const Machines& machines) {
  return machines.rank >= 0 ? machines.rank == 0 : rendezvous::is_this_machine(machines.host);
}

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

}  // namespace

SeveralMachines::SeveralMachines(const LaunchConfiguration& run)
    : run_(run),
      settings_(settings_of(run)),
      at_{.host = run.machines.host, .port = run.machines.port},
      is_host_(is_host(run.machines)),
      context_(rendezvous::Side::client, run.token),
      program_(digest_of_program(run.program)),
      run_id_(run.options.rdzv_id.empty() ? new_job() : run.options.rdzv_id) {
  if (is_host_) {
    server_ = std::make_unique<rendezvous::JobServer>(rendezvous::ServerOptions{
        .loopback_only = false, .port = at_.port, .token = run.token, .coordinator = settings_});
  }
}

SeveralMachines::~SeveralMachines() {
  {
    const std::lock_guard<std::mutex> turn(turn_);
    is_over_ = true;
  }
  over_.notify_all();
  if (alive_.joinable()) alive_.join();
  connection_.reset();
  if (server_) server_->wait_for_farewells(run_.options.grace_period);
}

void SeveralMachines::keep_alive() {
  std::unique_lock<std::mutex> turn(turn_);
  while (!over_.wait_for(turn, kSignOfLife, [&] { return is_over_; })) {
    if (connection_->open()) connection_->send(R"({"kind": "alive"})");
  }
}

int SeveralMachines::file() const {
  const std::lock_guard<std::mutex> turn(turn_);
  return connection_ && connection_->open() ? connection_->file() : -1;
}

short SeveralMachines::events() const {
  const std::lock_guard<std::mutex> turn(turn_);
  return connection_ ? connection_->events() : POLLIN;
}

void SeveralMachines::send(const json& message) {
  const std::lock_guard<std::mutex> turn(turn_);
  connection_->send(bytes_of(message));
}

std::optional<json> SeveralMachines::read() {
  const std::lock_guard<std::mutex> turn(turn_);
  connection_->advance();
  while (const auto message = connection_->next()) {
    heard_ = Clock::now();
    json parsed = json::parse(*message);
    if (parsed.value("kind", "") != "alive") return parsed;
  }
  return std::nullopt;
}

bool SeveralMachines::silent() const {
  return seconds_since(heard_) > settings_.keep_alive_timeout + 1;
}

void SeveralMachines::wait(Signals& signals, int milliseconds) {
  pollfd files[] = {{.fd = signals.file(), .events = POLLIN, .revents = 0},
                    {.fd = file(), .events = events(), .revents = 0}};
  poll(files, 2, milliseconds);
  while (const auto number = signals.next()) {
    if (is_end(*number)) leaving(*number);
  }
}

void SeveralMachines::tell_waiting(const std::string& text) {
  const auto now = Clock::now();
  const std::string stem = text.substr(0, text.rfind(';'));  // without the seconds that are left
  const bool news = stem != told_ && now - told_at_ >= kBeforeTelling;
  if (now - asked_at_ < kBeforeTelling || (!news && now - told_at_ < kTellAgain)) return;
  told_ = stem;
  told_at_ = now;
  if (!run_.options.quiet)
    std::fprintf(stderr, "hasten launch: waits at %s: %s\n", text_of(at_).c_str(), text.c_str());
}

bool SeveralMachines::connect(Signals& signals) {
  const auto began = asked_at_ = Clock::now();
  const double longest = settings_.join_timeout;
  while (left_by_ == 0) {
    // Its own server is met by loopback: the name may be one of another interface.
    const rendezvous::Attempted attempted =
        rendezvous::connect_to(is_host_ ? Endpoint{.host = "127.0.0.1", .port = at_.port} : at_, 5);
    // In Kubernetes a name comes with its pod.
    if (attempted.unknown_host && std::getenv("KUBERNETES_SERVICE_HOST") == nullptr) {
      throw IoError("rendezvous.host",
                    {.what = "the machine to meet at, " + at_.host,
                     .got = attempted.why,
                     .expected = "a name or an address that this machine knows"});
    }
    if (attempted.socket >= 0) {
      auto connection = std::make_unique<rendezvous::Connection>(attempted.socket, context_);
      connection->send("agent");
      connection->flush(Clock::now() + 5s);
      if (connection->known()) {
        const std::lock_guard<std::mutex> turn(turn_);
        connection_ = std::move(connection);
        heard_ = Clock::now();
        alive_ = std::thread([this] { keep_alive(); });
        return true;
      }
      if (!connection->open()) {
        throw ConfigError("rendezvous.refused",
                          {.what = "the job at " + text_of(at_) + " has refused this machine",
                           .got = connection->why_closed(),
                           .hint = "the token must be the same on every machine"});
      }
    }
    const std::string why = attempted.socket >= 0 ? "no answer" : attempted.why;
    if (seconds_since(began) >= longest) {
      throw IoError("rendezvous.connect",
                    {.what = "the machine to meet at, " + text_of(at_),
                     .got = why,
                     .expected = str("an answer within ", fixed(longest, 0), " s"),
                     .hint = "is its launcher started, and the port open to this machine?"});
    }
    const std::string own = rendezvous::address_towards(at_),
                      interface = rendezvous::interface_of(own);
    tell_waiting(str(why, interface.empty() ? "" : str(", from ", own, " (", interface, ")"), "; ",
                     static_cast<std::int64_t>(longest - seconds_since(began)), " s are left"));
    wait(signals, static_cast<int>(std::chrono::milliseconds(kBetweenAttempts).count()));
  }
  return false;
}

void SeveralMachines::join() {
  port_.emplace(/*loopback_only=*/false);
  asked_at_ = Clock::now();
  send({{"kind", "join"},
        {"protocol", rendezvous::kProtocol},
        {"host", host_name()},
        {"address", run_.options.local_addr},
        {"serves", is_host_},
        {"program", program_},
        {"processes", processes_here(run_)},
        {"num_processes", run_.options.num_processes.value_or(0)},
        {"machine_rank", run_.machines.rank},
        {"min_machines", run_.machines.least},
        {"max_machines", run_.machines.most},
        {"job", run_.options.rdzv_id},
        {"run_id", run_id_},
        {"port", port_->number()}});
}

Round SeveralMachines::round_of(const json& message) const {
  const std::string host = message.value("serves_at", at_.host);
  return {.attempt = message.at("attempt"),
          .machine_rank = message.at("machine_rank"),
          .num_machines = message.at("num_machines"),
          .first_rank = message.at("first_rank"),
          .world_size = message.at("world_size"),
          .processes = processes_here(run_),
          .master_addr = message.at("master_addr"),
          .master_port = message.at("master_port"),
          .store = text_of(Endpoint{.host = host, .port = at_.port}),
          .token = run_.token,
          .run_id = message.value("run_id", "")};
}

End SeveralMachines::end_of(const json& message) {
  const std::string reason = message.value("reason", "");
  const bool told = reason.empty() || reason == own_failure_;
  return {.code = message.value("code", 1), .reason = told ? "" : "the job ends: " + reason};
}

End SeveralMachines::lost(const std::string& why) {
  return {.code = 1, .reason = "the machine they meet at, " + text_of(at_) + ", is lost: " + why};
}

Next SeveralMachines::next(Signals& signals) {
  if (left_by_ != 0) return End{.code = 128 + left_by_};
  if (end_) return lost(*end_);
  if (!connection_ && !connect(signals)) return End{.code = 128 + left_by_};
  if (!has_ended_) join();
  while (left_by_ == 0) {
    while (const auto message = read()) {
      const std::string kind = message->value("kind", "");
      if (kind == "waiting") tell_waiting(message->value("text", ""));
      if (kind == "finish") return end_of(*message);
      if (kind == "stop" && has_ended_) {  // another machine's ranks have failed: all start again
        restart_ = message->value("reason", "");
        has_ended_ = false;
        join();
      }
      if (kind == "refused") {
        throw ConfigError(message->value("code", "rendezvous.refused"),
                          {.what = message->value("what", ""),
                           .got = message->value("got", ""),
                           .expected = message->value("expected", ""),
                           .hint = message->value("hint", "")});
      }
      if (kind != "round") continue;
      const Round round = round_of(*message);
      if (!run_.options.quiet && round.attempt > 0) {
        const std::string why = restart_.empty() || restart_ == own_failure_ ? "" : ": " + restart_;
        std::fprintf(stderr, "hasten launch: all processes start again, on %lld machines%s\n",
                     static_cast<long long>(round.num_machines), why.c_str());
      }
      restart_.clear();
      own_failure_.clear();
      has_ended_ = false;
      return round;
    }
    if (!connection_->open()) return lost(connection_->why_closed());
    if (silent()) return lost("no word from it");
    wait(signals, 250);
  }
  return End{.code = 128 + left_by_};
}

std::optional<Order> SeveralMachines::order() {
  if (end_) return std::nullopt;
  while (const auto message = read()) {
    if (message->value("kind", "") != "stop") continue;
    restart_ = message->value("reason", "");
    return Order{.after_failure = message->value("after_failure", true)};
  }
  if (!connection_->open()) end_ = connection_->why_closed();
  if (!end_ && silent()) end_ = "no word from it";
  if (end_) return Order{.after_failure = true};
  return std::nullopt;
}

void SeveralMachines::failed(int code, const std::string& reason) {
  own_failure_ = json::parse(bytes_of(reason)).get<std::string>();  // as it will come back
  send({{"kind", "failed"}, {"code", code}, {"reason", reason}});
}

void SeveralMachines::ended() {
  has_ended_ = true;
  send({{"kind", "ended"}});
}

void SeveralMachines::leaving(int signal) {
  if (left_by_ == 0 && connection_) send({{"kind", "leaving"}, {"signal", signal}});
  if (left_by_ == 0) left_by_ = signal;
}

}  // namespace hasten
