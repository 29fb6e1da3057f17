#include "launch/multi_machine_controller.h"

#include <poll.h>

#include <algorithm>

#include "base/process_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/digest.h"
#include "launch/job.h"
#include "launch/shortage_report.h"
#include "launch/slurm_tasks.h"
#include "launch/unknown_host.h"
#include "rendezvous/backoff.h"

namespace hasten {
namespace {

using nlohmann::json;
using rendezvous::Clock;
using namespace std::chrono_literals;

constexpr auto kFirstReportDelay = 1s;       // shorter waits are not reported
constexpr auto kReportRepeatInterval = 30s;  // between two reports of the same wait
constexpr auto kExtraGrace = 1s;

rendezvous::CoordinatorSettings settings_of(const LaunchConfiguration& run) {
  const Kwargs& conf = run.options.rdzv_conf;
  return {.min_machines = run.machines.min_count,
          .max_machines = run.machines.max_count,
          .max_restarts = run.options.max_restarts,
          .earlier_restarts = slurm_restarts(Variables(config::whole_environment())),
          .join_timeout = conf.number("join_timeout", 600),
          .last_call_timeout = conf.number("last_call_timeout", 30),
          .keep_alive_timeout = conf.number("keep_alive_timeout", 30),
          .same_program = conf.flag("same_program", true)};
}

// Returns the name that the job gets if this is the machine at which all meet. Slurm's name is the
// same when Slurm starts the job again.
std::string run_id_of(const LaunchConfiguration& run) {
  const std::string name =
      user_or_slurm_job_name(run.options.rdzv_id, Variables(config::whole_environment()));
  return name.empty() ? new_job_name() : name;
}

// Returns the text as the coordinator will send it back. JSON requires UTF-8, but the output of
// ranks may be something else.
std::string with_valid_utf8(const std::string& text) {
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

MultiMachineController::MultiMachineController(const LaunchConfiguration& run, Console& console,
                                               Signals& signals)
    : run_(run),
      console_(console),
      signals_(signals),
      settings_(settings_of(run)),
      coordinator_endpoint_{.host = run.machines.host, .port = run.machines.port},
      program_digest_(digest_of_program(run.program)),
      agent_id_(new_job_name()),
      run_id_(run_id_of(run)) {}

MultiMachineController::~MultiMachineController() {
  if (coordinator_) coordinator_->send({{"kind", "exited"}});
  coordinator_.reset();
  if (server_) wait_until_all_disconnected();
}

// Waits until the other machines have learned from this machine's server why the job ends. Waits at
// most for the grace period of their ranks, counted from the signal if there was one, or until
// another signal comes.
void MultiMachineController::wait_until_all_disconnected() {
  const auto patience = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(run_.options.grace_period));
  const auto now = Clock::now();
  // Ranks of other machines that are killed after the grace period end at about the same time as
  // the ranks here, so their launchers get a little more time.
  const auto until =
      leave_signal_ == 0 ? now + patience : std::max(leave_time_ + patience, now + kExtraGrace);
  while (!server_->all_disconnected() && Clock::now() < until) {
    pollfd file = {.fd = signals_.descriptor(), .events = POLLIN, .revents = 0};
    poll(&file, 1, 2);
    while (const auto number = signals_.next()) {
      if (is_termination_signal(*number)) return;
    }
  }
}

// True if all machines meet at this one: it has rank 0 or, without machine ranks, the address.
// Returns nullopt if a signal comes first.
std::optional<bool> MultiMachineController::is_host() {
  if (run_.machines.rank >= 0) return run_.machines.rank == 0;
  RunningClock clock;
  const auto deadline = clock.now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(settings_.join_timeout));
  rendezvous::Backoff backoff(100ms, 5s);
  while (leave_signal_ == 0) {
    const rendezvous::Lookup lookup(coordinator_endpoint_);
    while (!lookup.done() && leave_signal_ == 0 && clock.now() < deadline)
      wait(lookup.descriptor(), POLLIN, 1000);
    if (leave_signal_ != 0) break;
    if (!lookup.done())
      throw unknown_host_error(coordinator_endpoint_.host, "no answer from the name server");
    const rendezvous::LookupResult& found = lookup.result();
    if (!found.addresses.empty()) return rendezvous::is_this_machine(found);
    const bool may_come = !found.unknown_host || host_names_may_appear_later();
    if (!may_come || clock.now() >= deadline)
      throw unknown_host_error(coordinator_endpoint_.host, found.error);
    report_waiting(found.error, [&] { return found.error; });
    wait(-1, 0, static_cast<int>(backoff.next().count()));
  }
  return std::nullopt;
}

void MultiMachineController::connect() {
  wait_start_ = Clock::now();
  const auto host = is_host();
  if (!host) return;
  hosts_coordinator_ = *host;
  if (hosts_coordinator_) {
    server_ = std::make_unique<rendezvous::JobServer>(rendezvous::ServerOptions{
        .loopback_only = false,
        .port = coordinator_endpoint_.port,
        .token = run_.token,
        .coordinator = settings_,
        .on_shortage = run_.options.quiet ? nullptr : shortage_report(console_)});
  }
  // A launcher reaches its own server by loopback, because the name may belong to another
  // interface.
  const Endpoint target = hosts_coordinator_
                              ? Endpoint{.host = "127.0.0.1", .port = coordinator_endpoint_.port}
                              : coordinator_endpoint_;
  coordinator_ = std::make_unique<CoordinatorConnection>(
      CoordinatorConnection::Endpoints{.displayed = coordinator_endpoint_, .target = target},
      run_.token,
      CoordinatorConnection::Timeouts{.keep_alive_timeout = settings_.keep_alive_timeout,
                                      .join_timeout = settings_.join_timeout},
      [this] { return opening_messages(); });
}

void MultiMachineController::wait(int file, short events, int milliseconds) {
  pollfd files[] = {{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
                    {.fd = file, .events = events, .revents = 0}};
  poll(files, 2, milliseconds);
  while (const auto number = signals_.next()) {
    // The signal that has stopped the other machines may arrive here last.
    if (is_termination_signal(*number) || *number == stop_signal_) report_leaving(*number);
  }
}

void MultiMachineController::report(const std::string& text) const {
  if (!run_.options.quiet) console_.print_message(text);
}

// Reports the reason of a stop as soon as it comes, since the next round may be far away.
void MultiMachineController::report_stop(const json& message) {
  const std::string reason = message.value("reason", "");
  // Ranks stop only once, so only the first reason is reported. make_job_result() reports a later
  // reason that differs, and it reports the last reason for a quiet launcher.
  if (reason.empty() || !reported_reason_.empty() || run_.options.quiet) return;
  reported_reason_ = reason;
  report("stopping the processes: " + reason);
}

void MultiMachineController::report_notice() {
  if (const auto notice = coordinator_->take_notice()) report(*notice);
}

// Reports changes of `stem` at growing intervals, so that a thousand machines that join one by one
// do not cause a thousand lines on each of them. `text` is called only if it is reported.
void MultiMachineController::report_waiting(const std::string& stem,
                                            const std::function<std::string()>& text) {
  const auto now = Clock::now();
  if (now - wait_start_ < kFirstReportDelay) return;
  if (now - reported_at_ <
      (stem == reported_wait_ ? Clock::duration(kReportRepeatInterval) : report_interval_))
    return;
  report_interval_ =
      std::clamp<Clock::duration>(report_interval_ * 2, kFirstReportDelay, kReportRepeatInterval);
  reported_wait_ = stem;
  reported_at_ = now;
  report("waiting at " + to_text(coordinator_endpoint_) + ": " + text());
}

void MultiMachineController::request_round() {
  port_ = rendezvous::ReservedPort(/*loopback_only=*/false);  // holds the last port until then
  wait_start_ = Clock::now();
  report_interval_ = {};
  round_is_requested_ = true;
  coordinator_->send(join_message());
}

json MultiMachineController::join_message() const {
  return {{"kind", "join"},
          {"protocol", rendezvous::kProtocol},
          {"agent", agent_id_},
          {"attempt", attempt_},
          {"host", host_name()},
          {"address", run_.options.local_addr},
          {"hosts_coordinator", hosts_coordinator_},
          {"program", program_digest_},
          {"processes", processes_on_this_machine(run_)},
          {"num_processes", run_.options.num_processes.value_or(0)},
          {"machine_rank", run_.machines.rank},
          {"min_machines", run_.machines.min_count},
          {"max_machines", run_.machines.max_count},
          {"job", run_.options.rdzv_id},
          {"run_id", run_id_},
          {"port", port_->number()}};
}

json MultiMachineController::leaving_message() const {
  return {{"kind", "leaving"}, {"signal", leave_signal_}};
}

// Returns what the coordinator must know about this launcher on a new connection.
std::vector<json> MultiMachineController::opening_messages() const {
  std::vector<json> messages;
  if (attempt_ >= 0)
    messages.push_back({{"kind", "rejoin"}, {"agent", agent_id_}, {"attempt", attempt_}});
  if (round_report_) messages.push_back(*round_report_);
  if (round_is_requested_) messages.push_back(join_message());
  if (leave_signal_ != 0) messages.push_back(leaving_message());
  return messages;
}

Round MultiMachineController::round_of(const json& message) const {
  const std::string host = message.value("coordinator_address", coordinator_endpoint_.host);
  return {.attempt = message.at("attempt").get<int>() + message.value("earlier_restarts", 0),
          .machine_rank = message.at("machine_rank"),
          .num_machines = message.at("num_machines"),
          .first_rank = message.at("first_rank"),
          .world_size = message.at("world_size"),
          .processes = processes_on_this_machine(run_),
          .master_addr = message.at("master_addr"),
          .master_port = message.at("master_port"),
          .store = to_text(Endpoint{.host = host, .port = coordinator_endpoint_.port}),
          .token = run_.token,
          .run_id = message.value("run_id", "")};
}

Round MultiMachineController::begin_round(const json& message) {
  const Round round = round_of(message);
  attempt_ = message.at("attempt");
  if (attempt_ > 0) {
    report(str("restarting all processes on ", round.num_machines, " machines"));
  }
  reported_reason_.clear();
  stop_signal_ = 0;
  round_report_.reset();
  round_succeeded_ = false;
  round_is_requested_ = false;
  return round;
}

JobResult MultiMachineController::make_job_result(const json& message) const {
  const std::string reason = message.value("reason", "");
  const bool is_reported = reason.empty() || reason == reported_reason_;
  return {.code = message.value("code", 1), .reason = is_reported ? "" : "the job ends: " + reason};
}

JobResult MultiMachineController::make_loss_result(const std::string& why) const {
  return {.code = 1,
          .reason = "the coordinator at " + to_text(coordinator_endpoint_) + " is lost: " + why};
}

void MultiMachineController::throw_refused(const json& message) const {
  throw ConfigError(message.value("code", "rendezvous.refused"),
                    {.what = message.value("what", ""),
                     .got = message.value("got", ""),
                     .expected = message.value("expected", ""),
                     .hint = message.value("hint", "")});
}

std::optional<RoundOrResult> MultiMachineController::handle_message(const json& message) {
  const std::string kind = message.value("kind", "");
  if (kind == "waiting") {
    const std::string text = message.value("text", "");
    // The stem leaves out the seconds.
    report_waiting(text.substr(0, text.rfind(';')), [&] { return text; });
  }
  if (kind == "finish") return make_job_result(message);
  if (kind == "refused") throw_refused(message);
  if (kind == "round" && round_is_requested_) return begin_round(message);
  if (kind == "stop" &&
      round_succeeded_) {  // ranks of another machine have failed: all start again
    report_stop(message);
    stop_signal_ = message.value("signal", 0);
    round_succeeded_ = false;
    round_report_.reset();
    request_round();
  }
  return std::nullopt;
}

RoundOrResult MultiMachineController::next() {
  if (leave_signal_ != 0) return JobResult{.code = 128 + leave_signal_};
  if (!coordinator_) connect();
  if (coordinator_loss_) return make_loss_result(*coordinator_loss_);
  if (leave_signal_ == 0 && !round_succeeded_) request_round();
  while (leave_signal_ == 0) {
    while (const auto message = coordinator_->next()) {
      if (const auto next = handle_message(*message)) return *next;
    }
    if (coordinator_->loss_reason()) return make_loss_result(*coordinator_->loss_reason());
    report_notice();
    if (!coordinator_->is_connected())
      report_waiting(coordinator_->waiting_reason(), [&] { return coordinator_->waiting_text(); });
    wait(coordinator_->descriptor(), coordinator_->events(), coordinator_->longest_wait());
  }
  return JobResult{.code = 128 + leave_signal_};
}

std::optional<StopRequest> MultiMachineController::poll_stop_request() {
  if (coordinator_loss_) return std::nullopt;
  while (const auto message = coordinator_->next()) {
    // The ranks of a launcher that leaves are no longer part of the job. Only the signal and
    // grace_period decide when they end.
    if (leave_signal_ != 0 || message->value("kind", "") != "stop") continue;
    report_stop(*message);
    stop_signal_ = message->value("signal", 0);
    return StopRequest{.after_failure = message->value("after_failure", true),
                       .signal = stop_signal_};
  }
  if (leave_signal_ != 0) return std::nullopt;
  report_notice();
  if (!coordinator_->loss_reason()) return std::nullopt;
  coordinator_loss_ = coordinator_->loss_reason();
  return StopRequest{.after_failure = true};
}

void MultiMachineController::report_failure(int code, const std::string& reason) {
  reported_reason_ = with_valid_utf8(reason);
  round_report_ = {{"kind", "failed"}, {"attempt", attempt_}, {"code", code}, {"reason", reason}};
  coordinator_->send(*round_report_);
}

void MultiMachineController::report_success() {
  round_succeeded_ = true;
  round_report_ = {{"kind", "ended"}, {"attempt", attempt_}};
  coordinator_->send(*round_report_);
}

void MultiMachineController::report_leaving(int signal) {
  if (leave_signal_ != 0) return;
  leave_signal_ = signal;
  leave_time_ = Clock::now();
  if (coordinator_) coordinator_->send(leaving_message());
}

}  // namespace hasten
