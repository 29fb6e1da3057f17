#include "test_machine.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "child.h"
#include "hand_over.h"
#include "hasten/base/error.h"
#include "hasten/config/token.h"
#include "launch/exit_codes.h"
#include "rendezvous/job_server.h"
#include "rendezvous/secure_context.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_client.h"
#include "test_parts.h"

namespace hasten::cli {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;

constexpr milliseconds kUntilGone{2000};  // what the launcher promises
constexpr milliseconds kUntilTold{1000};  // what the watchdog promises, after the limit

Clock::time_point in(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(duration<double>(seconds));
}

std::string in_milliseconds(duration<double> time) { return fixed(time.count() * 1e3, 0) + " ms"; }

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

// The words of `hasten launch OPTIONS PROGRAM`, without the user's configuration.
std::vector<std::string> launch_of(const std::vector<std::string>& program,
                                   const std::vector<std::string>& options) {
  std::vector<std::string> words = {own_program(), "launch", "--no_config_file", "--use_cpu"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::vector<std::string> part_named(const std::string& name) {
  return {own_program(), "test", kAs, name};
}

struct Finished {
  int code = 0;
  std::vector<Child::Line> lines;
};

Finished run_to_end(Child& child, Clock::time_point deadline) {
  Finished finished;
  while (auto line = child.line(deadline)) finished.lines.push_back(std::move(*line));
  const auto code = child.over() ? child.wait(deadline) : std::nullopt;
  if (!code) throw Wrong("the launcher has not ended within the limit");
  finished.code = *code;
  return finished;
}

// What one part (test_parts.h) has reported in its line.
struct Part {
  std::int64_t rank = 0, world = 0, machine = 0, attempt = 0, port = 0, pid = 0, child = 0, at = 0;
  Clock::time_point time() const { return Clock::time_point(std::chrono::microseconds(at)); }
};

std::optional<Part> part_of(const std::string& line) {
  const std::size_t begin = line.find("part ");
  if (begin == line.npos) return std::nullopt;
  Part part;
  for (const std::string& word : split(line.substr(begin + 5), ' ')) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    for (const auto& [known, value] : {std::pair{"rank", &part.rank},
                                       {"world", &part.world},
                                       {"machine", &part.machine},
                                       {"attempt", &part.attempt},
                                       {"port", &part.port},
                                       {"pid", &part.pid},
                                       {"child", &part.child},
                                       {"at", &part.at}}) {
      if (name == known && equals != word.npos) *value = std::atoll(word.c_str() + equals + 1);
    }
  }
  return part;
}

std::vector<Part> parts_of(const std::vector<Child::Line>& lines) {
  std::vector<Part> parts;
  for (const Child::Line& line : lines) {
    if (const auto part = part_of(line.text)) parts.push_back(*part);
  }
  return parts;
}

// A launcher's errors explain more than what is missing because of them.
std::string last_words(const Finished& finished) {
  return finished.lines.empty() ? "no output" : "last line: " + finished.lines.back().text;
}

void expect_code(const Finished& finished, int expected) {
  if (finished.code == expected) return;
  throw Wrong("the launcher's exit code", str(finished.code, " (", last_words(finished), ")"),
              expected);
}

std::string restart(double limit) {
  Child launcher(launch_of(part_named("killed-once"), {"-n", "2", "--max_restarts", "1"}),
                 {.without_ours = true});
  const Finished finished = run_to_end(launcher, in(limit));
  expect_code(finished, 0);
  std::set<std::int64_t> ports;
  std::optional<Clock::time_point> killed, again;
  int back = 0;
  for (const Part& part : parts_of(finished.lines)) {
    ports.insert(part.port);
    if (part.attempt == 0 && part.rank == 1) killed = part.time();
    if (part.attempt != 1) continue;
    ++back;
    again = std::max(again.value_or(part.time()), part.time());
  }
  expect_equal("processes of the second attempt", back, 2);
  expect_equal("ports of two attempts", ports.size(), 2U);
  if (!killed || !again) throw Wrong("rank 1 did not report before it killed itself");
  return "rank 1 killed by SIGKILL; all ranks restarted " + in_milliseconds(*again - *killed) +
         " later on another port";
}

std::string first_failure(double limit) {
  Child launcher(launch_of(part_named("fails"), {"-n", "2"}), {.without_ours = true});
  const Finished finished = run_to_end(launcher, in(limit));
  expect_code(finished, kCodeOfFailure);
  std::optional<Clock::time_point> failed, told;
  bool has_words = false;
  for (const Child::Line& line : finished.lines) {
    if (const auto part = part_of(line.text); part && !failed) failed = part->time();
    const bool names = line.text.find("rank 1 on ") != line.text.npos &&
                       line.text.find(str("code ", kCodeOfFailure)) != line.text.npos;
    if (names) told = line.at;
    has_words |= line.text == str("  | ", kLastWords);
  }
  if (!told || !failed) throw Wrong("the report", last_words(finished), "rank 1 and its code 7");
  if (!has_words) throw Wrong("the report lacks the last line of rank 1");
  return str("rank 1, its exit code ", kCodeOfFailure, " and its last line were reported after ",
             in_milliseconds(*told - *failed));
}

// True if the process has ended, even if its parent has not waited for it yet.
bool is_gone(std::int64_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return true;
  const std::size_t name_ends = text.rfind(')');
  return name_ends == text.npos || text.substr(name_ends).find_first_of("ZX") == 2;
}

std::vector<std::int64_t> alive_of(std::vector<std::int64_t> processes) {
  std::erase_if(processes, is_gone);
  return processes;
}

std::string nothing_left(double limit) {
  Child launcher(launch_of(part_named("stays"), {"-n", "2"}), {.without_ours = true});
  const auto deadline = in(limit);
  std::vector<std::int64_t> processes;
  std::string last = "nothing";
  while (processes.size() < 4) {
    const auto line = launcher.line(deadline);
    if (!line) throw Wrong("processes of the job", last, "two ranks that print their process IDs");
    last = line->text;
    if (const auto part = part_of(line->text)) {
      processes.push_back(part->pid);
      processes.push_back(part->child);
    }
  }
  launcher.send(SIGKILL);
  const auto killed = Clock::now();
  while (!alive_of(processes).empty() && Clock::now() < killed + kUntilGone)
    std::this_thread::sleep_for(milliseconds(1));
  const auto left = alive_of(processes);
  for (const std::int64_t process : left) kill(static_cast<pid_t>(process), SIGKILL);
  if (!left.empty())
    throw Wrong(str(left.size(),
                    " processes still run 2 s after their launcher was killed, one is ",
                    left.front()));
  return "launcher killed by SIGKILL; ranks and their children gone after " +
         in_milliseconds(Clock::now() - killed);
}

std::string strangers(double limit) {
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
  throw Wrong("the job's store accepts a process with a wrong token");
}

std::string rendezvous_here(double limit) {
  const int port = rendezvous::ReservedPort(/*loopback_only=*/false).number();
  const ChildOptions options{.variables = {str(kTokenVariable, "=", rendezvous::new_token())},
                             .without_ours = true};
  const auto machine = [&](int rank) {
    return launch_of(part_named("tells"),
                     {"--num_machines", "2", "--machine_rank", str(rank), "--main_process_ip",
                      "127.0.0.1", "--main_process_port", str(port), "--nproc_per_node", "1"});
  };
  const auto deadline = in(limit);
  const auto began = Clock::now();
  Child first(machine(0), options), second(machine(1), options);
  const Finished ends[] = {run_to_end(first, deadline), run_to_end(second, deadline)};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    expect_code(ends[rank], 0);
    const auto parts = parts_of(ends[rank].lines);
    if (parts.size() != 1) throw Wrong("ranks of a machine", parts.size(), 1);
    expect_equal("the rank", parts[0].rank, rank);
    expect_equal("the machine", parts[0].machine, rank);
    expect_equal("the world size", parts[0].world, 2);
  }
  return "two launchers met on loopback and succeeded after " +
         in_milliseconds(Clock::now() - began);
}

std::string watchdog(double limit) {
  Child launcher(launch_of({torch_program(), kHangOfTest}, {"-n", "2"}), {.without_ours = true});
  const Finished finished = run_to_end(launcher, in(limit));
  expect_code(finished, kLateRankCode);
  std::optional<Clock::time_point> waits, told;
  for (const Child::Line& line : finished.lines) {
    if (const auto part = part_of(line.text); part && part->rank == 0) waits = part->time();
    const bool names =
        line.text.find("error[process.late-rank]: rank 1 has not reached") != line.text.npos;
    if (names && !told) told = line.at;
  }
  if (!waits || !told) throw Wrong("the report", last_words(finished), "rank 1, which hangs");
  const auto after = *told - *waits - kLimitOfHang;
  if (after > kUntilTold)
    throw Wrong("the report after the limit", in_milliseconds(after), in_milliseconds(kUntilTold));
  return str("hanging rank 1 reported ", in_milliseconds(after), " after the limit of ",
             kLimitOfHang.count(), " s, both ranks ended");
}

struct MachineCheck {
  const char* name;
  std::string (*run)(double limit);
};

constexpr MachineCheck checks[] = {
    {"restart", restart},     {"first failure", first_failure}, {"nothing left", nothing_left},
    {"strangers", strangers}, {"rendezvous", rendezvous_here},  {"watchdog", watchdog},
};

}  // namespace

void check_machine(double limit, TestReport& report) {
  for (const MachineCheck& check : checks) {
    TestResult result{.check = check.name, .result = "ok"};
    const auto began = Clock::now();
    try {
      result.text = check.run(limit);
    } catch (const std::exception& error) {
      result.result = "FAIL";
      result.text = error.what();
    }
    result.seconds = duration<double>(Clock::now() - began).count();
    report.add(result);
  }
}

}  // namespace hasten::cli
