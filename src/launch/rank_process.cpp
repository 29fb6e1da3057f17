#include "launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file_limit.h"
#include "base/seconds.h"
#include "base/signal_text.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_start_error(const std::string& program, int error) {
  throw IoError("launch.start", {.what = "program " + program, .got = std::strerror(error)});
}

// Somebody else has waited for the process, so its exit code is unknown.
constexpr int kUnknownStatus = -1;

// Everything that a new process needs until it runs the rank's program.
struct ExecParameters {
  int input, output, errors, failed;  // input -1 is the launcher's; failed gets exec's errno
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cores;  // null means all
  const Signals& signals;
};

// Runs between fork and exec, so it calls only functions that are safe there.
[[noreturn]] void exec_program(const ExecParameters& start) {
  start.signals.restore_in_rank();
  restore_file_limit();
  if (start.cores != nullptr) sched_setaffinity(0, sizeof *start.cores, start.cores);
  if (start.input >= 0) dup2(start.input, STDIN_FILENO);
  dup2(start.output, STDOUT_FILENO);
  dup2(start.errors, STDERR_FILENO);
  execve(start.arguments[0], start.arguments, start.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(start.failed, &error, sizeof error);
  _exit(127);
}

// Replaces a terminal by /dev/null, because the system would stop a background rank that reads it.
int input_of_rank() { return isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1; }

ChildPipe open_pipe(const std::string& program) {
  auto pipe = ChildPipe::open();
  if (!pipe) throw_start_error(program, errno);
  return std::move(*pipe);
}

}  // namespace

RankProcess::RankProcess(const RankCommand& command, const Signals& signals)
    : started_at_(Clock::now()) {
  const std::string& program = command.program[0];
  ChildPipe output = open_pipe(program), errors = open_pipe(program), failed = open_pipe(program);
  const std::vector<std::string> environment = exec_environment(command.environment);
  const std::vector<char*> arguments = exec_arguments(command.program),
                           variables = exec_arguments(environment);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : command.cores) CPU_SET(core, &set);
  const Descriptor input(input_of_rank());
  const ExecParameters start = {.input = input.get(),
                                .output = output.write_end.get(),
                                .errors = errors.write_end.get(),
                                .failed = failed.write_end.get(),
                                .arguments = arguments.data(),
                                .environment = variables.data(),
                                .cores = command.cores.empty() ? nullptr : &set,
                                .signals = signals};
  ChildProcess process({.leads_group = true}, [&] { exec_program(start); });
  if (process.error() != 0) throw_start_error(program, process.error());
  failed.write_end.close();
  int error = 0;
  const ssize_t got = read(failed.read_end.get(), &error, sizeof error);  // 0 bytes after an exec
  if (got == sizeof error) {
    process.reap();
    throw_start_error(program, error);
  }
  for (const Descriptor* const file : {&output.read_end, &errors.read_end})
    fcntl(file->get(), F_SETFL, O_NONBLOCK);
  output_ = std::move(output.read_end);
  errors_ = std::move(errors.read_end);
  process_.emplace(std::move(process));
}

void RankProcess::close_file(int file) {
  for (Descriptor* const each : {&output_, &errors_}) {
    if (each->get() == file) each->close();
  }
}

bool RankProcess::has_just_ended() {
  if (status_) return false;
  const ChildState state = process_->state();
  if (state == ChildState::running) return false;
  // Kills the processes that the rank leaves behind. Its number is not reused until it is reaped.
  if (state == ChildState::ended) process_->send_to_group(SIGKILL);
  status_ = process_->reap().value_or(kUnknownStatus);
  ended_at_ = Clock::now();
  return true;
}

std::optional<int> RankProcess::has_just_stopped() const {
  siginfo_t info{};
  if (status_ || waitid(P_PID, static_cast<id_t>(process()), &info, WSTOPPED | WNOHANG) != 0 ||
      info.si_pid != process())
    return std::nullopt;
  return info.si_status;
}

int RankProcess::code() const { return *status_ == kUnknownStatus ? 1 : exit_code_of(*status_); }

std::string RankProcess::end_description() const {
  if (*status_ == kUnknownStatus) return "ended with an unknown code";
  if (!WIFSIGNALED(*status_)) return str("ended with code ", WEXITSTATUS(*status_));
  return "was killed by " + signal_text(WTERMSIG(*status_));
}

double RankProcess::seconds() const {
  return seconds_of((status_ ? ended_at_ : Clock::now()) - started_at_);
}

}  // namespace hasten
