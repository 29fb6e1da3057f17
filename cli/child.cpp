#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/poll_timeout.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"

namespace hasten::cli {
namespace {

// Runs between fork and exec, so it calls only functions that are safe there.
[[noreturn]] void exec_program(int pipe, int read_descriptor, char* const* arguments,
                               char* const* environment) {
  if (read_descriptor == 0) {
    dup2(pipe, STDOUT_FILENO);
    dup2(pipe, STDERR_FILENO);
  } else {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    dup2(pipe, read_descriptor);
    fcntl(read_descriptor, F_SETFD, 0);  // dup2 does not clear close-on-exec if both are one number
  }
  execve(arguments[0], arguments, environment);
  _exit(127);
}

[[noreturn]] void throw_cannot_start(const std::string& program, int error) {
  throw IoError("launch.start", {.what = "program " + program, .got = std::strerror(error)});
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const ChildOptions& options) {
  const std::vector<std::string> environment =
      exec_environment(options.variables, options.drop_hasten_variables ? "HASTEN_" : "");
  const std::vector<char*> arguments = exec_arguments(command),
                           variables = exec_arguments(environment);
  auto pipe = ChildPipe::open();
  if (!pipe) throw_cannot_start(command[0], errno);
  // This process may have inherited an ignored SIGCHLD. The system would then keep no exit codes.
  signal(SIGCHLD, SIG_DFL);
  // A launcher ends its ranks when it receives SIGTERM.
  process_.emplace(ForkOptions{.signal_at_parent_end = SIGTERM}, [&] {
    exec_program(pipe->write_end.get(), options.read_descriptor, arguments.data(),
                 variables.data());
  });
  if (process_->error() != 0) throw_cannot_start(command[0], process_->error());
  file_ = std::move(pipe->read_end);
}

void Child::read_lines() {
  char buffer[16 << 10];
  const ssize_t got = read(file_.get(), buffer, sizeof buffer);
  if (got < 0 && errno == EINTR) return;
  const auto now = Clock::now();
  if (got <= 0) {
    file_.close();
    if (!partial_line_.empty()) lines_.push_back({partial_line_, now});
    return;
  }
  for (const char character : std::string_view(buffer, static_cast<std::size_t>(got))) {
    if (character != '\n') {
      partial_line_ += character;
      continue;
    }
    lines_.push_back({partial_line_, now});
    partial_line_.clear();
  }
}

std::optional<Child::Line> Child::line(Clock::time_point deadline) {
  while (lines_.empty() && !is_at_end()) {
    pollfd file = {.fd = file_.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&file, 1, poll_timeout(deadline));
    if (ready > 0) read_lines();
    if (ready == 0 && Clock::now() >= deadline) return std::nullopt;
  }
  if (lines_.empty()) return std::nullopt;
  Line line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::optional<int> Child::wait(Clock::time_point deadline) {
  while (!code_) {
    if (process_->state() != ChildState::running) {
      const auto status = process_->reap();
      code_ = status ? exit_code_of(*status) : 1;  // 1 means that the code is unknown
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return code_;
}

}  // namespace hasten::cli
