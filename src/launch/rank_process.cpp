#include "launch/rank_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_limit.h"
#include "base/signal_text.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"

extern char** environ;

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

// The rank's variables, and those of the launcher that they do not replace.
std::vector<std::string> whole_environment(const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string line = *variable;
    const std::string name = line.substr(0, line.find('=') + 1);
    bool replaced = false;
    for (const std::string& each : own) replaced |= starts_with(each, name);
    if (!replaced) all.push_back(line);
  }
  return all;
}

[[noreturn]] void cannot_start(const std::string& program, int error) {
  throw IoError("launch.start", {.what = "program " + program, .got = std::strerror(error)});
}

// Somebody else has waited for the process, so its exit code is unknown.
constexpr int kUnknownStatus = -1;

// Everything that a new process needs until it runs the rank's program.
struct Start {
  pid_t launcher;
  int input, output, errors, failed;  // input -1: the launcher's; failed: receives exec's errno
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* cores;  // null: all
  const Signals& signals;
};

// Runs between fork and exec, so it calls only what is safe there.
[[noreturn]] void exec_program(const Start& start) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != start.launcher) _exit(127);  // the launcher has died meanwhile
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

// The system would stop a rank that reads the terminal from the background.
int input_of_rank() { return isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1; }

}  // namespace

RankProcess::RankProcess(const RankCommand& command, const Signals& signals)
    : started_at_(Clock::now()) {
  int output[2], errors[2], failed[2];
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0 ||
      pipe2(failed, O_CLOEXEC) != 0)
    cannot_start(command.program[0], errno);
  const std::vector<std::string> environment = whole_environment(command.environment);
  const std::vector<char*> arguments = exec_arguments(command.program),
                           variables = exec_arguments(environment);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : command.cores) CPU_SET(core, &set);
  const Start start = {.launcher = getpid(),
                       .input = input_of_rank(),
                       .output = output[1],
                       .errors = errors[1],
                       .failed = failed[1],
                       .arguments = arguments.data(),
                       .environment = variables.data(),
                       .cores = command.cores.empty() ? nullptr : &set,
                       .signals = signals};
  process_ = fork();
  if (process_ == 0) exec_program(start);
  const int fork_error = errno;
  for (const int end : {start.input, output[1], errors[1], failed[1]}) {
    if (end >= 0) close(end);
  }
  files_[0] = output[0];
  files_[1] = errors[0];
  if (process_ < 0) {
    close(failed[0]);
    cannot_start(command.program[0], fork_error);
  }
  setpgid(process_, process_);  // parent and child call it, as either may be first
  for (const int file : files_) fcntl(file, F_SETFL, O_NONBLOCK);
  int error = 0;
  const ssize_t got = read(failed[0], &error, sizeof error);  // 0 bytes if exec has succeeded
  close(failed[0]);
  if (got == sizeof error) {
    waitpid(process_, nullptr, 0);
    status_ = 0;
    cannot_start(command.program[0], error);
  }
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      files_{std::exchange(other.files_[0], -1), std::exchange(other.files_[1], -1)},
      status_(other.status_),
      started_at_(other.started_at_),
      ended_at_(other.ended_at_) {}

RankProcess::~RankProcess() {
  for (const int file : files_) {
    if (file >= 0) close(file);
  }
  if (process_ <= 0) return;
  if (!status_) {
    send(SIGKILL);
    waitpid(process_, nullptr, 0);
  }
}

void RankProcess::close_file(int file) {
  for (int& each : files_) {
    if (each != file || each < 0) continue;
    close(each);
    each = -1;
  }
}

void RankProcess::send(int signal) const { kill(-process_, signal); }

bool RankProcess::has_just_ended() {
  if (status_) return false;
  siginfo_t info{};
  const bool asked =
      waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  if (asked ? info.si_pid != process_ : errno != ECHILD) return false;
  int status = kUnknownStatus;
  if (asked) {
    // Kills what the rank leaves behind; its number is not reused until it is waited for.
    send(SIGKILL);
    waitpid(process_, &status, 0);
  }
  status_ = status;
  ended_at_ = Clock::now();
  return true;
}

std::optional<int> RankProcess::has_just_stopped() const {
  siginfo_t info{};
  if (status_ || waitid(P_PID, static_cast<id_t>(process_), &info, WSTOPPED | WNOHANG) != 0 ||
      info.si_pid != process_)
    return std::nullopt;
  return info.si_status;
}

int RankProcess::code() const {
  if (*status_ == kUnknownStatus) return 1;
  return WIFSIGNALED(*status_) ? 128 + WTERMSIG(*status_) : WEXITSTATUS(*status_);
}

std::string RankProcess::end_description() const {
  if (*status_ == kUnknownStatus) return "ended with an unknown code";
  if (!WIFSIGNALED(*status_)) return str("ended with code ", WEXITSTATUS(*status_));
  return "was killed by " + signal_text(WTERMSIG(*status_));
}

double RankProcess::seconds() const {
  return std::chrono::duration<double>((status_ ? ended_at_ : Clock::now()) - started_at_).count();
}

}  // namespace hasten
