#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"

extern char** environ;

namespace hasten::cli {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> environment_of(const ChildOptions& options) {
  std::vector<std::string> all = options.variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string line = *variable;
    if (!options.drop_hasten_variables || !starts_with(line, "HASTEN_")) all.push_back(line);
  }
  return all;
}

// Runs between fork and exec, so it calls only what is safe there.
[[noreturn]] void exec_program(pid_t parent, int pipe, int read_descriptor, char* const* words,
                               char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // on SIGTERM a launcher ends its ranks
  if (getppid() != parent) _exit(127);
  if (read_descriptor == 0) {
    dup2(pipe, STDOUT_FILENO);
    dup2(pipe, STDERR_FILENO);
  } else {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    dup2(pipe, read_descriptor);
    fcntl(read_descriptor, F_SETFD, 0);  // dup2 does not clear close-on-exec if both are one number
  }
  execve(words[0], words, environment);
  _exit(127);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

}  // namespace

Child::Child(const std::vector<std::string>& words, const ChildOptions& options) {
  const std::vector<std::string> environment = environment_of(options);
  const std::vector<char*> arguments = exec_arguments(words),
                           variables = exec_arguments(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw IoError("launch.start", {.what = "program " + words[0], .got = std::strerror(errno)});
  // If SIGCHLD is ignored, which this process may have inherited, exit codes are not kept.
  signal(SIGCHLD, SIG_DFL);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0)
    exec_program(parent, ends[1], options.read_descriptor, arguments.data(), variables.data());
  const int error = errno;
  close(ends[1]);
  file_ = ends[0];
  if (process_ > 0) return;
  close(file_);
  throw IoError("launch.start", {.what = "program " + words[0], .got = std::strerror(error)});
}

Child::~Child() {
  if (file_ >= 0) close(file_);
  if (code_) return;
  send(SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Child::send(int signal) const {
  if (!code_) kill(process_, signal);
}

void Child::read_lines() {
  char buffer[16 << 10];
  const ssize_t got = read(file_, buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  const auto now = Clock::now();
  if (got <= 0) {
    close(file_);
    file_ = -1;
    if (!partial_line_.empty()) lines_.push_back({partial_line_, now});
    return;
  }
  for (const char letter : std::string_view(buffer, static_cast<std::size_t>(got))) {
    if (letter != '\n') {
      partial_line_ += letter;
      continue;
    }
    lines_.push_back({partial_line_, now});
    partial_line_.clear();
  }
}

std::optional<Child::Line> Child::line(Clock::time_point deadline) {
  while (lines_.empty() && file_ >= 0) {
    pollfd file = {.fd = file_, .events = POLLIN, .revents = 0};
    const int ready = poll(&file, 1, milliseconds_until(deadline));
    if (ready > 0) read_lines();
    if (ready == 0) return std::nullopt;
  }
  if (lines_.empty()) return std::nullopt;
  Line line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::optional<int> Child::wait(Clock::time_point deadline) {
  while (!code_) {
    int status = 0;
    const pid_t waited = waitpid(process_, &status, WNOHANG);
    if (waited == process_) {
      code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (waited < 0 && errno == ECHILD) {
      code_ = 1;  // it has ended, and its code is unknown
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  return code_;
}

}  // namespace hasten::cli
