// The processes of a job, and the order in which they end.
#include "launch/job.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "launch/exit_order.h"
#include "launch/process_table.h"

namespace launch_job_test {

using namespace hasten;

namespace {

// Starts a process that waits, with one variable as its environment.
pid_t start_waiting_process(const std::string& variable) {
  std::string name = variable;
  char* const environment[] = {name.data(), nullptr};
  char program[] = "/bin/sleep", seconds[] = "60";
  char* const arguments[] = {program, seconds, nullptr};
  const pid_t process = fork();
  if (process == 0) {
    execve(program, arguments, environment);
    _exit(127);
  }
  while (environment_of(process).find(variable) == std::string::npos) usleep(1000);
  return process;
}

// Returns the signal that ended the process. If the process is alive, kills it and returns 0.
int signal_that_ended(pid_t process) {
  int status = 0;
  if (waitpid(process, &status, WNOHANG) == process) return WTERMSIG(status);
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  return 0;
}

}  // namespace

TEST_CASE("job: a job inside a rank of another job has both names") {
  CHECK(new_inner_job_name(nullptr).size() == new_job_name().size());
  CHECK(new_inner_job_name("").size() == new_job_name().size());
  CHECK(starts_with(new_inner_job_name("outer"), "outer."));
}

TEST_CASE("job: processes with its name are killed, and processes with another name are not") {
  const std::string job = new_job_name(), line = str(kJobVariable, "=", job);
  const pid_t own = start_waiting_process(line), inner = start_waiting_process(line + ".inner"),
              other = start_waiting_process(line + "x"), spared = start_waiting_process(line);
  CHECK(kill_job({.job = job, .cleanup_pid = spared}) == 2);
  waitid(P_PID, static_cast<id_t>(own), nullptr, WEXITED | WNOWAIT);
  waitid(P_PID, static_cast<id_t>(inner), nullptr, WEXITED | WNOWAIT);
  CHECK(signal_that_ended(own) == SIGKILL);
  CHECK(signal_that_ended(inner) == SIGKILL);
  CHECK(signal_that_ended(other) == 0);
  CHECK(signal_that_ended(spared) == 0);
}

TEST_CASE("job: a process that takes long to end is counted once") {
  // The kernel needs several rounds to free this memory.
  constexpr std::size_t kBytes = std::size_t{512} << 20;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    madvise(memory, kBytes, MADV_NOHUGEPAGE);  // huge pages are freed too fast
    std::memset(memory, 1, kBytes);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ends[1]);
  char ready = 0;
  CHECK(read(ends[0], &ready, 1) == 1);
  close(ends[0]);
  CHECK(kill_job({.job = new_job_name(), .descendants = true}) == 1);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("job: a process older than the caller is killed if the job is older, too") {
  const std::string job = new_job_name();
  const pid_t older = start_waiting_process(str(kJobVariable, "=", job));
  const auto start = entry_of(older)->start;
  usleep(50'000);  // a few clock ticks
  const pid_t cleanup_process = fork();
  if (cleanup_process == 0) {
    const int without = kill_job({.job = job});
    _exit(without == 0 && kill_job({.job = job, .launcher_start = start}) == 1 ? 0 : 1);
  }
  int status = -1;
  waitpid(cleanup_process, &status, 0);
  CHECK(status == 0);
  if (status == 0) waitid(P_PID, static_cast<id_t>(older), nullptr, WEXITED | WNOWAIT);
  CHECK(signal_that_ended(older) == SIGKILL);
}

TEST_CASE("process table: environments are read before and after one whose read hangs") {
  std::vector<pid_t> processes;
  for (int i = 0; i < 4; ++i) processes.push_back(start_waiting_process("A=" + std::to_string(i)));
  const auto found = test_environments(processes, [](const std::string& text) {
    if (text.find("A=1") != text.npos) usleep(3'000'000);  // like a read of locked memory
    return text.find("A=0") == text.npos;
  });
  CHECK(found == std::vector<bool>{false, false, true, true});
  for (const pid_t process : processes) CHECK(signal_that_ended(process) == 0);
}

TEST_CASE("process table: other users' environments are not read") {
  if (geteuid() != 0) return;  // only root can become another user
  const pid_t process = start_waiting_process("A=b");
  const pid_t other_user = fork();
  if (other_user == 0) {
    if (setuid(65534) != 0) _exit(2);
    _exit(test_environments({process}, [](const std::string&) { return true; })[0] ? 1 : 0);
  }
  int status = -1;
  waitpid(other_user, &status, 0);
  CHECK(status == 0);
  CHECK(signal_that_ended(process) == 0);
}

TEST_CASE("process table: it has this process, its parent and its children") {
  const pid_t child = start_waiting_process("A=b");
  const auto own = own_entry();
  REQUIRE(own);
  CHECK(own->pid == getpid());
  const auto table = process_table();
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const ProcessEntry& each) { return each.pid == child; });
  REQUIRE(at != table.end());
  CHECK(at->parent_proc_pid == own->proc_pid);
  CHECK(at->start >= own->start);
  CHECK(environment_of(at->proc_pid) == std::string("A=b\0", 4));
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  CHECK(entry_of(at->proc_pid)->state == 'Z');
  waitpid(child, nullptr, 0);
  CHECK_FALSE(entry_of(at->proc_pid));
}

TEST_CASE("exit order: processes are listed in the order in which they exit") {
  ExitOrder order;
  pid_t processes[3];
  for (std::size_t i = 0; i < 3; ++i) {
    processes[i] = start_waiting_process("A=b");
    order.add(i, processes[i]);
  }
  CHECK(order.next().empty());
  for (const std::size_t i : {2, 0, 1}) {
    kill(processes[i], SIGKILL);
    waitid(P_PID, static_cast<id_t>(processes[i]), nullptr, WEXITED | WNOWAIT);
  }
  CHECK(order.next() == std::vector<std::size_t>{2, 0, 1});
  CHECK(order.next().empty());
  for (const pid_t process : processes) waitpid(process, nullptr, 0);
}

}  // namespace launch_job_test
