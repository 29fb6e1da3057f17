#include "launch/several_machines.h"

#include <poll.h>

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/digest.h"
#include "launch/host_name.h"
#include "launch/job.h"
#include "launch/shortage_report.h"
#include "rendezvous/backoff.h"

namespace hasten {
namespace {

using nlohmann::json;
using rendezvous::Clock;
using namespace std::chrono_literals;

constexpr auto kBeforeTelling = 1s;  // shorter waits are not reported
constexpr auto kTellAgain = 30s;     // between two reports of the same wait
constexpr auto kMoment = 1s;

rendezvous::Settings settings_of(const LaunchConfiguration& run) {
  const Kwargs& conf = run.options.rdzv_conf;
  return {.min_machines = run.machines.least,
          .max_machines = run.machines.most,
          .max_restarts = run.options.max_restarts,
          .join_timeout = conf.number("join_timeout", 600),
          .last_call = conf.number("last_call_timeout", 30),
          .keep_alive_timeout = conf.number("keep_alive_timeout", 30),
          .same_program = conf.flag("same_program", true)};
}

// Returns the text as the coordinator will send it back: JSON requires UTF-8, which the output of
// ranks need not be.
std::string as_sent(const std::string& text) {
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

SeveralMachines::SeveralMachines(const LaunchConfiguration& run, Console& console, Signals& signals)
    : run_(run),
      console_(console),
      signals_(signals),
      settings_(settings_of(run)),
      at_{.host = run.machines.host, .port = run.machines.port},
      program_(digest_of_program(run.program)),
      agent_(new_job()),
      run_id_(run.options.rdzv_id.empty() ? new_job() : run.options.rdzv_id) {}

SeveralMachines::~SeveralMachines() {
  if (contact_) contact_->send({{"kind", "gone"}});
  contact_.reset();
  if (server_) wait_until_all_have_gone();
}

// Waits until the other machines have learned from this one's server why the job ends: at most for
// the grace period of their ranks, counted from the signal if there was one, or until another
// signal.
void SeveralMachines::wait_until_all_have_gone() {
  const auto patience = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(run_.options.grace_period));
  const auto now = Clock::now();
  // Ranks of other machines that are killed after the grace period end at about the same time as
  // those here, so their launchers get a moment more.
  const auto until = left_by_ == 0 ? now + patience : std::max(left_at_ + patience, now + kMoment);
  while (!server_->all_have_gone() && Clock::now() < until) {
    pollfd file = {.fd = signals_.file(), .events = POLLIN, .revents = 0};
    poll(&file, 1, 2);
    while (const auto number = signals_.next()) {
      if (is_end(*number)) return;
    }
  }
}

// True if all meet at this machine: it has rank 0 or, without machine ranks, the address. Returns
// nothing if a signal comes first.
std::optional<bool> SeveralMachines::is_host() {
  if (run_.machines.rank >= 0) return run_.machines.rank == 0;
  RunningClock clock;
  const auto deadline = clock.now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(settings_.join_timeout));
  rendezvous::Backoff backoff(100ms, 5s);
  while (left_by_ == 0) {
    const rendezvous::Lookup lookup(at_);
    while (!lookup.done() && left_by_ == 0 && clock.now() < deadline)
      wait(lookup.file(), POLLIN, 1000);
    if (left_by_ != 0) break;
    if (!lookup.done()) throw unknown_host(at_.host, "no answer from the name server");
    const rendezvous::Found& found = lookup.found();
    if (!found.addresses.empty()) return rendezvous::is_this_machine(found);
    const bool may_come = !found.unknown_host || names_may_come();
    if (!may_come || clock.now() >= deadline) throw unknown_host(at_.host, found.why);
    tell_waiting(found.why, [&] { return found.why; });
    wait(-1, 0, static_cast<int>(backoff.next().count()));
  }
  return std::nullopt;
}

void SeveralMachines::begin() {
  asked_at_ = Clock::now();
  const auto host = is_host();
  if (!host) return;
  serves_ = *host;
  if (serves_) {
    server_ = std::make_unique<rendezvous::JobServer>(rendezvous::ServerOptions{
        .loopback_only = false,
        .port = at_.port,
        .token = run_.token,
        .coordinator = settings_,
        .on_shortage = run_.options.quiet ? nullptr : shortage_report(console_)});
  }
  // A launcher reaches its own server by loopback, as the name may belong to another interface.
  const Endpoint reached = serves_ ? Endpoint{.host = "127.0.0.1", .port = at_.port} : at_;
  contact_ =
      std::make_unique<Contact>(Contact::Place{.named = at_, .reached = reached}, run_.token,
                                Contact::Limits{.keep_alive_timeout = settings_.keep_alive_timeout,
                                                .join_timeout = settings_.join_timeout},
                                [this] { return introduction(); });
}

void SeveralMachines::wait(int file, short events, int milliseconds) {
  pollfd files[] = {{.fd = signals_.file(), .events = POLLIN, .revents = 0},
                    {.fd = file, .events = events, .revents = 0}};
  poll(files, 2, milliseconds);
  while (const auto number = signals_.next()) {
    if (is_end(*number)) leaving(*number);
  }
}

void SeveralMachines::tell(const std::string& text) const {
  if (!run_.options.quiet) console_.say(text);
}

// Reports the reason of a stop as soon as it comes, since the next round may be far away.
void SeveralMachines::tell_stop(const json& message) {
  const std::string reason = message.value("reason", "");
  // Ranks stop only once, so only the first reason is reported. end_of() reports a different one,
  // and reports the last one for a quiet launcher.
  if (reason.empty() || !told_reason_.empty() || run_.options.quiet) return;
  told_reason_ = reason;
  tell("stopping the processes: " + reason);
}

void SeveralMachines::tell_news() {
  if (const auto news = contact_->news()) tell(*news);
}

// Reports changes of `stem` at growing intervals, so that a thousand machines that come one by one
// do not cause a thousand lines on each of them. `text` is called only if it is reported.
void SeveralMachines::tell_waiting(const std::string& stem,
                                   const std::function<std::string()>& text) {
  const auto now = Clock::now();
  if (now - asked_at_ < kBeforeTelling) return;
  if (now - told_at_ < (stem == told_ ? Clock::duration(kTellAgain) : tell_after_)) return;
  tell_after_ = std::clamp<Clock::duration>(tell_after_ * 2, kBeforeTelling, kTellAgain);
  told_ = stem;
  told_at_ = now;
  tell("waiting at " + text_of(at_) + ": " + text());
}

void SeveralMachines::ask_for_round() {
  port_.emplace(/*loopback_only=*/false);
  asked_at_ = Clock::now();
  tell_after_ = {};
  asks_for_round_ = true;
  contact_->send(join_message());
}

json SeveralMachines::join_message() const {
  return {{"kind", "join"},
          {"protocol", rendezvous::kProtocol},
          {"agent", agent_},
          {"attempt", attempt_},
          {"host", host_name()},
          {"address", run_.options.local_addr},
          {"serves", serves_},
          {"program", program_},
          {"processes", processes_here(run_)},
          {"num_processes", run_.options.num_processes.value_or(0)},
          {"machine_rank", run_.machines.rank},
          {"min_machines", run_.machines.least},
          {"max_machines", run_.machines.most},
          {"job", run_.options.rdzv_id},
          {"run_id", run_id_},
          {"port", port_->number()}};
}

json SeveralMachines::leaving_message() const {
  return {{"kind", "leaving"}, {"signal", left_by_}};
}

// Returns what the coordinator must know about this launcher on a new connection.
std::vector<json> SeveralMachines::introduction() const {
  std::vector<json> messages;
  if (attempt_ >= 0)
    messages.push_back({{"kind", "rejoin"}, {"agent", agent_}, {"attempt", attempt_}});
  if (report_) messages.push_back(*report_);
  if (asks_for_round_) messages.push_back(join_message());
  if (left_by_ != 0) messages.push_back(leaving_message());
  return messages;
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

Round SeveralMachines::begin_round(const json& message) {
  const Round round = round_of(message);
  if (round.attempt > 0) {
    tell(str("restarting all processes on ", round.num_machines, " machines"));
  }
  told_reason_.clear();
  report_.reset();
  has_ended_ = false;
  asks_for_round_ = false;
  attempt_ = round.attempt;
  return round;
}

End SeveralMachines::end_of(const json& message) const {
  const std::string reason = message.value("reason", "");
  const bool told = reason.empty() || reason == told_reason_;
  return {.code = message.value("code", 1), .reason = told ? "" : "the job ends: " + reason};
}

End SeveralMachines::lost(const std::string& why) const {
  return {.code = 1, .reason = "the coordinator at " + text_of(at_) + " is lost: " + why};
}

void SeveralMachines::refuse(const json& message) const {
  throw ConfigError(message.value("code", "rendezvous.refused"),
                    {.what = message.value("what", ""),
                     .got = message.value("got", ""),
                     .expected = message.value("expected", ""),
                     .hint = message.value("hint", "")});
}

std::optional<Next> SeveralMachines::hear(const json& message) {
  const std::string kind = message.value("kind", "");
  if (kind == "waiting") {
    const std::string text = message.value("text", "");
    // The stem has no seconds.
    tell_waiting(text.substr(0, text.rfind(';')), [&] { return text; });
  }
  if (kind == "finish") return end_of(message);
  if (kind == "refused") refuse(message);
  if (kind == "round" && asks_for_round_) return begin_round(message);
  if (kind == "stop" && has_ended_) {  // ranks of another machine have failed: all start again
    tell_stop(message);
    has_ended_ = false;
    report_.reset();
    ask_for_round();
  }
  return std::nullopt;
}

Next SeveralMachines::next() {
  if (left_by_ != 0) return End{.code = 128 + left_by_};
  if (!contact_) begin();
  if (end_) return lost(*end_);
  if (left_by_ == 0 && !has_ended_) ask_for_round();
  while (left_by_ == 0) {
    while (const auto message = contact_->next()) {
      if (const auto next = hear(*message)) return *next;
    }
    if (contact_->lost_because()) return lost(*contact_->lost_because());
    tell_news();
    if (!contact_->is_up())
      tell_waiting(contact_->why_waiting(), [&] { return contact_->waiting_text(); });
    wait(contact_->file(), contact_->events(), contact_->longest_wait());
  }
  return End{.code = 128 + left_by_};
}

std::optional<Order> SeveralMachines::order() {
  if (end_) return std::nullopt;
  while (const auto message = contact_->next()) {
    // The ranks of a launcher that leaves are no longer part of the job: only the signal and
    // grace_period decide when they end.
    if (left_by_ != 0 || message->value("kind", "") != "stop") continue;
    tell_stop(*message);
    return Order{.after_failure = message->value("after_failure", true)};
  }
  if (left_by_ != 0) return std::nullopt;
  tell_news();
  if (!contact_->lost_because()) return std::nullopt;
  end_ = contact_->lost_because();
  return Order{.after_failure = true};
}

void SeveralMachines::failed(int code, const std::string& reason) {
  told_reason_ = as_sent(reason);
  report_ = {{"kind", "failed"}, {"attempt", attempt_}, {"code", code}, {"reason", reason}};
  contact_->send(*report_);
}

void SeveralMachines::ended() {
  has_ended_ = true;
  report_ = {{"kind", "ended"}, {"attempt", attempt_}};
  contact_->send(*report_);
}

void SeveralMachines::leaving(int signal) {
  if (left_by_ != 0) return;
  left_by_ = signal;
  left_at_ = Clock::now();
  if (contact_) contact_->send(leaving_message());
}

}  // namespace hasten
