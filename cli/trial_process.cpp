#include "trial_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/child_process.h"
#include "base/signal_text.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"
#include "track/log_names.h"

namespace hasten::cli {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::milliseconds(20);

// Reads the values of a metric from the file of the tracker jsonl as it grows.
class MetricReader {
 public:
  MetricReader(fs::path file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  // Reports the values that are new.
  void report_to(Trial& trial) {
    std::ifstream file(file_, std::ios::binary);
    if (!file.seekg(static_cast<std::streamoff>(offset_))) return;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      offset_ += line.size() + 1;
      read(line, trial);
    }
  }
  const std::optional<double>& last() const { return last_; }
  const std::set<std::string>& names() const { return names_; }

 private:
  void read(const std::string& line, Trial& trial) {
    const auto json = parse_json_or_discard(line);
    if (!json.is_object() || !json.contains("step")) return;
    for (const auto& [name, value] : json.items()) {
      if (value.is_number() && starts_with(name, "eval/")) names_.insert("eval_" + name.substr(5));
    }
    if (!json.contains(name_)) return;
    const auto& value = json[name_];
    if (!value.is_number() && !value.is_null()) return;
    last_ = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    trial.report(json["step"].get<std::int64_t>(), *last_);
  }

  fs::path file_;
  std::string name_;
  std::size_t offset_ = 0;
  std::optional<double> last_;
  std::set<std::string> names_;  // The metrics of all evaluations, for a message.
};

// Runs between fork and exec, so it calls only functions that are safe there.
[[noreturn]] void exec_run(int log, int lock, char* const* arguments, char* const* environment) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);  // a thread of the search blocks all signals
  const int null_device = open("/dev/null", O_RDONLY);
  dup2(null_device, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (lock >= 0) fcntl(lock, F_SETFD, 0);
  execve(arguments[0], arguments, environment);
  _exit(127);
}

ChildProcess start_run(const std::vector<std::string>& command, const RunSettings& settings,
                       const fs::path& log_file) {
  const Descriptor log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (log.get() < 0)
    throw IoError("io.open",
                  {.what = "cannot open " + log_file.string(), .got = std::strerror(errno)});
  const auto environment = exec_environment(settings.variables);
  const std::vector<char*> arguments = exec_arguments(command),
                           variables = exec_arguments(environment);
  // The run leads a process group, so that Ctrl-C in a terminal reaches only the search.
  ChildProcess run({.leads_group = true, .signal_at_parent_end = SIGTERM},
                   [&] { exec_run(log.get(), settings.lock, arguments.data(), variables.data()); });
  if (run.error() == 0) return run;
  throw IoError("launch.start",
                {.what = "program " + command[0], .got = std::strerror(run.error())});
}

// The status of a run as waitpid(2) returns it, and whether the run was asked to stop.
struct RunResult {
  int status = 0;
  bool was_stopped = false;
};
RunResult wait_for_run(ChildProcess& run, Trial& trial, MetricReader& metric_reader,
                       double stop_timeout) {
  std::optional<Clock::time_point> stopped;
  while (run.state() == ChildState::running) {
    metric_reader.report_to(trial);
    if (!stopped && trial.should_stop()) {
      run.send_to_group(SIGTERM);
      stopped = Clock::now();
    }
    if (stopped && Clock::now() - *stopped > std::chrono::duration<double>(stop_timeout))
      run.send_to_group(SIGKILL);
    std::this_thread::sleep_for(kPollInterval);
  }
  metric_reader.report_to(trial);
  return {.status = run.reap().value_or(1), .was_stopped = stopped.has_value()};
}

// Returns the last line with an error in the output of a run, or else its last line.
std::string last_error(const fs::path& log_file) {
  std::string last, error;
  for (const std::string& line : split(read_file(log_file), '\n')) {
    if (!trim(line).empty()) last = trim(line);
    if (line.find(": error") != std::string::npos) error = trim(line);
  }
  return error.empty() ? last : error;
}

std::string describe_exit(int status) {
  if (WIFSIGNALED(status)) return signal_text(WTERMSIG(status)) + " ended the run";
  return str("the run ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

std::optional<double> run_trial(Trial& trial, const SearchPlan& plan, const RunSettings& settings) {
  const fs::path folder = run_folder(plan, trial.number());
  fs::remove_all(folder);  // left by an interrupted search
  make_directories(folder);
  std::vector<std::string> command = run_arguments(plan, trial.number(), trial.parameters());
  command.insert(command.begin(), settings.program);
  const fs::path log_file = folder / "log.txt";
  ChildProcess run = start_run(command, settings, log_file);
  MetricReader metric_reader(folder / "metrics.jsonl", grouped_name(plan.metric));
  const RunResult end = wait_for_run(run, trial, metric_reader, settings.stop_timeout);
  const int code = exit_code_of(end.status);
  if (code == 0 && metric_reader.last()) return metric_reader.last();
  if (code == 0) {
    const auto& names = metric_reader.names();
    throw DataError("search.no-metric",
                    {.what = str("trial ", trial.number(), " logged no ", plan.metric),
                     .expected = join({names.begin(), names.end()}, ", "),
                     .hint = "set --metric to one of these names"});
  }
  if (end.was_stopped) return std::nullopt;
  const std::string reason = describe_exit(end.status) + ": " + last_error(log_file);
  if (code < 2 || code > 4) return trial.fail(reason);
  throw Error(
      "search.run",
      {.what = str("trial ", trial.number(), ": ", reason), .hint = "see " + log_file.string()},
      code);
}

}  // namespace hasten::cli
