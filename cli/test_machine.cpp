#include "test_machine.h"

#include <signal.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/parse_number.h"
#include "base/process_state.h"
#include "base/seconds.h"
#include "child.h"
#include "exec_torch.h"
#include "hasten/base/error.h"
#include "launch/exit_codes.h"
#include "machine/token.h"
#include "own_program.h"
#include "rendezvous/job_server.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"
#include "test_probes.h"

namespace hasten::cli {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

constexpr milliseconds kMaxTimeToEnd{2000};     // what the launcher promises
constexpr milliseconds kMaxTimeToReport{1000};  // what the watchdog promises, after the limit

Clock::time_point in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(duration<double>(seconds));
}

std::string in_milliseconds(duration<double> time) { return fixed(time.count() * 1e3, 0) + " ms"; }

// Returns the command `hasten launch OPTIONS PROGRAM`, without the user's configuration.
std::vector<std::string> launch_command(const std::vector<std::string>& program,
                                        const std::vector<std::string>& options) {
  std::vector<std::string> command = {own_program(), "launch", "--no_config_file", "--use_cpu"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

std::vector<std::string> probe_command(const std::string& name) {
  return {own_program(), "test", kProbeFlag, name};
}

struct CompletedProgram {
  int code = 0;
  std::vector<Child::Line> lines;
};

CompletedProgram run_to_end(Child& child, Clock::time_point deadline) {
  CompletedProgram completed;
  while (auto line = child.line(deadline)) completed.lines.push_back(std::move(*line));
  const auto code = child.is_at_end() ? child.wait(deadline) : std::nullopt;
  if (!code) throw CheckFailed("the launcher has not ended within the limit");
  completed.code = *code;
  return completed;
}

// The report of one probe (test_probes.h), read from its line.
struct ProbeLine {
  std::int64_t rank = 0, world = 0, machine = 0, attempt = 0, port = 0, pid = 0, child = 0, at = 0;
  Clock::time_point time() const { return Clock::time_point(std::chrono::microseconds(at)); }
};

std::optional<ProbeLine> parse_probe_line(const std::string& line) {
  const std::size_t begin = line.find("probe rank=");
  if (begin == line.npos) return std::nullopt;
  ProbeLine probe;
  for (const std::string& field : split(line.substr(begin + 6), ' ')) {
    const std::size_t equals = field.find('=');
    const std::string name = field.substr(0, equals);
    for (const auto& [known, value] : {std::pair{"rank", &probe.rank},
                                       {"world", &probe.world},
                                       {"machine", &probe.machine},
                                       {"attempt", &probe.attempt},
                                       {"port", &probe.port},
                                       {"pid", &probe.pid},
                                       {"child", &probe.child},
                                       {"at", &probe.at}}) {
      if (name != known || equals == field.npos) continue;
      const auto number = parse_number<std::int64_t>(std::string_view(field).substr(equals + 1));
      if (!number) return std::nullopt;
      *value = *number;
    }
  }
  return probe;
}

std::vector<ProbeLine> probe_lines_of(const std::vector<Child::Line>& lines) {
  std::vector<ProbeLine> probes;
  for (const Child::Line& line : lines) {
    if (const auto probe = parse_probe_line(line.text)) probes.push_back(*probe);
  }
  return probes;
}

// Returns the launcher's last message, which explains more than missing output. If there is no
// message, it returns the last line. Lines of ranks may come after a message.
std::string last_message(const CompletedProgram& completed) {
  const auto& lines = completed.lines;
  if (lines.empty()) return "no output";
  const auto message = std::find_if(lines.rbegin(), lines.rend(), [](const Child::Line& line) {
    return line.text.starts_with("hasten launch: ");
  });
  return "last line: " + (message == lines.rend() ? lines.back() : *message).text;
}

void expect_code(const CompletedProgram& completed, int expected) {
  if (completed.code == expected) return;
  throw CheckFailed("the launcher's exit code",
                    str(completed.code, " (", last_message(completed), ")"), expected);
}

std::string restart(double limit) {
  Child launcher(launch_command(probe_command("killed-once"), {"-n", "2", "--max_restarts", "1"}),
                 {.drop_hasten_variables = true});
  const CompletedProgram completed = run_to_end(launcher, in(limit));
  expect_code(completed, 0);
  std::set<std::int64_t> ports;
  std::optional<Clock::time_point> killed, again;
  int back = 0;
  for (const ProbeLine& probe : probe_lines_of(completed.lines)) {
    ports.insert(probe.port);
    if (probe.attempt == 0 && probe.rank == 1) killed = probe.time();
    if (probe.attempt != 1) continue;
    ++back;
    again = std::max(again.value_or(probe.time()), probe.time());
  }
  expect_equal("processes of the second attempt", back, 2);
  expect_equal("ports of two attempts", ports.size(), 2U);
  if (!killed || !again) throw CheckFailed("rank 1 did not report before it killed itself");
  return "rank 1 killed by SIGKILL; all ranks restarted " + in_milliseconds(*again - *killed) +
         " later on another port";
}

std::string first_failure(double limit) {
  Child launcher(launch_command(probe_command("fails"), {"-n", "2"}),
                 {.drop_hasten_variables = true});
  const CompletedProgram completed = run_to_end(launcher, in(limit));
  expect_code(completed, kFailureCode);
  std::optional<Clock::time_point> failed, reported;
  bool has_last_line = false;
  for (const Child::Line& line : completed.lines) {
    if (const auto probe = parse_probe_line(line.text); probe && !failed) failed = probe->time();
    const bool names = line.text.find("rank 1 on ") != line.text.npos &&
                       line.text.find(str("code ", kFailureCode)) != line.text.npos;
    if (names) reported = line.at;
    has_last_line |= line.text == str("  | ", kLastLine);
  }
  if (!reported || !failed)
    throw CheckFailed("the report", last_message(completed), "rank 1 and its code 7");
  if (!has_last_line) throw CheckFailed("the report lacks the last line of rank 1");
  return str("rank 1, its exit code ", kFailureCode, " and its last line were reported after ",
             in_milliseconds(*reported - *failed));
}

// Returns true if the process has ended, even if its parent has not waited for it yet.
bool is_gone(std::int64_t process) {
  const auto status = process_status(str(process));
  return !status || has_ended(status->state);
}

std::vector<std::int64_t> filter_running(std::vector<std::int64_t> processes) {
  std::erase_if(processes, is_gone);
  return processes;
}

std::string no_orphans(double limit) {
  Child launcher(launch_command(probe_command("waits"), {"-n", "2"}),
                 {.drop_hasten_variables = true});
  const auto deadline = in(limit);
  std::vector<std::int64_t> processes;
  std::string last = "nothing";
  while (processes.size() < 4) {
    const auto line = launcher.line(deadline);
    if (!line)
      throw CheckFailed("processes of the job", last, "two ranks that print their process IDs");
    last = line->text;
    if (const auto probe = parse_probe_line(line->text)) {
      processes.push_back(probe->pid);
      processes.push_back(probe->child);
    }
  }
  launcher.send(SIGKILL);
  const auto killed = Clock::now();
  while (!filter_running(processes).empty() && Clock::now() < killed + kMaxTimeToEnd)
    std::this_thread::sleep_for(milliseconds(1));
  const auto left = filter_running(processes);
  for (const std::int64_t process : left) kill(static_cast<pid_t>(process), SIGKILL);
  if (!left.empty())
    throw CheckFailed(str(left.size(),
                          " processes still run 2 s after their launcher was killed, one is ",
                          left.front()));
  return "launcher killed by SIGKILL; ranks and their children gone after " +
         in_milliseconds(Clock::now() - killed);
}

std::string wrong_token(double limit) {
  const std::string token = rendezvous::new_token(), other = rendezvous::new_token();
  const rendezvous::JobServer server({.token = token});
  const Endpoint at{.host = "127.0.0.1", .port = server.port()};
  const milliseconds longest(static_cast<std::int64_t>(limit * 1e3));
  rendezvous::StoreClient friendly(at, token, longest);
  friendly.set("key", "value");
  expect_equal("a value of the job's store", friendly.get({"key"}, longest).front(), "value");
  try {
    rendezvous::StoreClient(at, other, longest);
  } catch (const IoError& error) {
    expect_equal("the error of a wrong token", error.code(), "rendezvous.refused");
    return "the job's store refuses a wrong token and accepts the right one";
  }
  throw CheckFailed("the job's store accepts a process with a wrong token");
}

std::string loopback_rendezvous(double limit) {
  const int port = rendezvous::ReservedPort(/*loopback_only=*/false).number();
  const ChildOptions options{.variables = {str(kTokenVariable, "=", rendezvous::new_token())},
                             .drop_hasten_variables = true};
  const auto machine = [&](int rank) {
    return launch_command(probe_command("prints"),
                          {"--num_machines", "2", "--machine_rank", str(rank), "--main_process_ip",
                           "127.0.0.1", "--main_process_port", str(port), "--nproc_per_node", "1"});
  };
  const auto deadline = in(limit);
  const auto began = Clock::now();
  Child first(machine(0), options), second(machine(1), options);
  const CompletedProgram ends[] = {run_to_end(first, deadline), run_to_end(second, deadline)};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    expect_code(ends[rank], 0);
    const auto probes = probe_lines_of(ends[rank].lines);
    if (probes.size() != 1) throw CheckFailed("ranks of a machine", probes.size(), 1);
    expect_equal("the rank", probes[0].rank, rank);
    expect_equal("the machine", probes[0].machine, rank);
    expect_equal("the world size", probes[0].world, 2);
  }
  return "two launchers met on loopback and succeeded after " +
         in_milliseconds(Clock::now() - began);
}

std::string watchdog(double limit) {
  Child launcher(launch_command({torch_program(), kTestHangCommand}, {"-n", "2"}),
                 {.drop_hasten_variables = true});
  const CompletedProgram completed = run_to_end(launcher, in(limit));
  expect_code(completed, kLateRankCode);
  std::optional<Clock::time_point> waits, reported;
  for (const Child::Line& line : completed.lines) {
    if (const auto probe = parse_probe_line(line.text); probe && probe->rank == 0)
      waits = probe->time();
    const bool names =
        line.text.find("error[process.late-rank]: rank 1 has not reached") != line.text.npos;
    if (names && !reported) reported = line.at;
  }
  if (!waits || !reported)
    throw CheckFailed("the report", last_message(completed), "rank 1, which hangs");
  const auto after = *reported - *waits - kHangTimeout;
  if (after > kMaxTimeToReport)
    throw CheckFailed("the report after the limit", in_milliseconds(after),
                      in_milliseconds(kMaxTimeToReport));
  return str("hanging rank 1 reported ", in_milliseconds(after), " after the limit of ",
             kHangTimeout.count(), " s, both ranks ended");
}

struct MachineCheck {
  const char* name;
  std::string (*run)(double limit);
};

constexpr MachineCheck kChecks[] = {
    {"restart", restart},         {"first failure", first_failure},    {"no orphans", no_orphans},
    {"wrong token", wrong_token}, {"rendezvous", loopback_rendezvous}, {"watchdog", watchdog},
};

}  // namespace

void check_machine(double limit, TestReport& report) {
  for (const MachineCheck& check : kChecks) {
    TestResult result{.check = check.name, .result = "ok"};
    const auto began = Clock::now();
    try {
      result.text = check.run(limit);
    } catch (const std::exception& error) {
      result.result = "FAIL";
      result.text = error.what();
    }
    result.seconds = seconds_since(began);
    report.add(result);
  }
}

}  // namespace hasten::cli
