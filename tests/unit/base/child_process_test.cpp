// Processes that are forked, watched and collected.
#include "base/child_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/poll_timeout.h"
#include "base/process_state.h"

namespace base_child_process_test {

using namespace hasten;
using namespace std::chrono_literals;

TEST_CASE("child process: state, status and exit code are reported") {
  auto pipe = ChildPipe::open();
  REQUIRE(pipe);
  ChildProcess child({}, [&] {
    char byte = 0;
    pipe->write_end.close();
    [[maybe_unused]] const ssize_t got = read(pipe->read_end.get(), &byte, 1);
    _exit(7);
  });
  REQUIRE(child.error() == 0);
  CHECK(child.state() == ChildState::running);
  pipe->write_end.close();
  CHECK(child.await_end() == ChildState::ended);
  CHECK(child.is_unreaped());
  const auto status = child.reap();
  REQUIRE(status);
  CHECK(exit_code_of(*status) == 7);
  CHECK_FALSE(child.is_unreaped());
}

TEST_CASE("child process: a signal ends it") {
  ChildProcess child({.leads_group = true}, [] { pause(); });
  child.send_to_group(SIGKILL);
  CHECK(exit_code_of(child.reap().value()) == 128 + SIGKILL);
}

TEST_CASE("child process: the destructor kills a process that has not been reaped") {
  pid_t number = -1;
  {
    ChildProcess child({}, [] { pause(); });
    ChildProcess moved(std::move(child));
    number = moved.number();
    CHECK(process_status(std::to_string(number)));
  }
  CHECK_FALSE(process_status(std::to_string(number)));
}

TEST_CASE("child process: the status is lost if this process ignores SIGCHLD") {
  const auto before = signal(SIGCHLD, SIG_IGN);
  ChildProcess child({}, [] { _exit(3); });
  CHECK(child.await_end() == ChildState::lost);
  CHECK_FALSE(child.reap());
  signal(SIGCHLD, before);
}

TEST_CASE("descriptor: closing it keeps errno") {
  auto pipe = ChildPipe::open();
  REQUIRE(pipe);
  const int file = pipe->read_end.get();
  errno = EPERM;
  pipe->read_end = Descriptor();
  CHECK(errno == EPERM);
  CHECK(pipe->read_end.get() == -1);
  char byte = 0;
  CHECK(read(file, &byte, 1) < 0);
}

TEST_CASE("poll timeout: rounds up and ends at the deadline") {
  const auto now = std::chrono::steady_clock::now();
  CHECK(poll_timeout(now - 1s) == 0);
  CHECK(poll_timeout(now + 10min) > 590'000);
  CHECK(poll_timeout(now + 24h * 365) == 1'000'000);
}

}  // namespace base_child_process_test
