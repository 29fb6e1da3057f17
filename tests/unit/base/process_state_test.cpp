// The check whether another process has ended.
#include "base/process_state.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace base_process_state_test {

using namespace hasten;
using namespace std::chrono_literals;

namespace {

// Reads the identity that the process itself wrote.
ProcessIdentity identity_of(pid_t child, const int (&pipe)[2]) {
  ProcessIdentity identity;
  REQUIRE(read(pipe[0], &identity, sizeof identity) == sizeof identity);
  CHECK(identity.number == child);
  return identity;
}

void write_own_identity(const int (&pipe)[2]) {
  const ProcessIdentity own = ProcessIdentity::own();
  if (write(pipe[1], &own, sizeof own) != sizeof own) _exit(1);
}

}  // namespace

TEST_CASE("process state: an ended process is recognized before it is waited for") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    write_own_identity(pipe);
    _exit(0);
  }
  const ProcessIdentity identity = identity_of(child, pipe);
  while (!has_ended(identity)) std::this_thread::sleep_for(1ms);
  CHECK(process_state(identity) == 'Z');
  waitpid(child, nullptr, 0);
  CHECK(process_state(identity) == 0);
  close(pipe[0]);
  close(pipe[1]);
}

TEST_CASE("process state: this process is running, an earlier one with its number is not") {
  ProcessIdentity identity = ProcessIdentity::own();
  CHECK_FALSE(has_ended(identity));
  CHECK(identity.started > 0);
  --identity.started;
  CHECK(has_ended(identity));
}

TEST_CASE("process state: a process runs as long as one of its threads") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    write_own_identity(pipe);
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);  // ends only the thread; pthread_exit would unwind through the test
  }
  const ProcessIdentity identity = identity_of(child, pipe);
  std::this_thread::sleep_for(300ms);  // by then the main thread has ended
  CHECK(process_state(identity) == 'S');
  kill(child, SIGKILL);
  while (!has_ended(identity)) std::this_thread::sleep_for(1ms);
  waitpid(child, nullptr, 0);
  close(pipe[0]);
  close(pipe[1]);
}

// Another thread collects the process while this one reads its status, so that some reads fail with
// ESRCH after the file was opened. One launch in 300 failed when such a read threw an exception.
TEST_CASE("process state: a process that ends while its status is read is no error") {
  for (int i = 0; i < 2000; ++i) {
    const pid_t child = ::fork();
    if (child == 0) _exit(0);
    std::thread collector([child] { waitpid(child, nullptr, 0); });
    while (process_status(std::to_string(child))) {
    }
    collector.join();
  }
}

}  // namespace base_process_state_test
