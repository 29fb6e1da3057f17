// What belongs to a job, and in which order processes end.
#include "launch/job.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "hasten/base/text.h"
#include "launch/end_order.h"
#include "launch/process_table.h"

using namespace hasten;

namespace {

// A process that waits, with one variable as its environment.
pid_t waiting_process(const std::string& variable) {
  std::string name = variable;
  char* const environment[] = {name.data(), nullptr};
  char program[] = "/bin/sleep", seconds[] = "60";
  char* const words[] = {program, seconds, nullptr};
  const pid_t process = fork();
  if (process == 0) {
    execve(program, words, environment);
    _exit(127);
  }
  while (environment_of(process).find(variable) == std::string::npos) usleep(1000);
  return process;
}

// The signal that has ended it; 0 where it is alive, and then it is ended.
int signal_that_ended(pid_t process) {
  int status = 0;
  if (waitpid(process, &status, WNOHANG) == process) return WTERMSIG(status);
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  return 0;
}

}  // namespace

TEST_CASE("job: one inside of another one's rank has both names") {
  CHECK(new_job_below(nullptr).size() == new_job().size());
  CHECK(new_job_below("").size() == new_job().size());
  CHECK(starts_with(new_job_below("outer"), "outer."));
}

TEST_CASE("job: what has its name is killed, and what has another one is not") {
  const std::string job = new_job(), line = str(kJobVariable, "=", job);
  const pid_t own = waiting_process(line), inner = waiting_process(line + ".inner"),
              other = waiting_process(line + "x"), spared = waiting_process(line);
  CHECK(kill_job({.job = job, .spared = spared}) == 2);
  waitid(P_PID, static_cast<id_t>(own), nullptr, WEXITED | WNOWAIT);
  waitid(P_PID, static_cast<id_t>(inner), nullptr, WEXITED | WNOWAIT);
  CHECK(signal_that_ended(own) == SIGKILL);
  CHECK(signal_that_ended(inner) == SIGKILL);
  CHECK(signal_that_ended(other) == 0);
  CHECK(signal_that_ended(spared) == 0);
}

TEST_CASE("process table: this process, its parent and its children") {
  const pid_t child = waiting_process("A=b");
  const auto own = own_entry();
  REQUIRE(own);
  CHECK(own->process == getpid());
  const auto table = process_table();
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const ProcessEntry& each) { return each.process == child; });
  REQUIRE(at != table.end());
  CHECK(at->parent == own->shown);
  CHECK(at->start >= own->start);
  CHECK(environment_of(at->shown) == std::string("A=b\0", 4));
  kill(child, SIGKILL);
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);
  CHECK(entry_of(at->shown)->state == 'Z');
  waitpid(child, nullptr, 0);
  CHECK_FALSE(entry_of(at->shown));
}

TEST_CASE("end order: processes come in the order of their ends") {
  EndOrder order;
  pid_t processes[3];
  for (std::size_t i = 0; i < 3; ++i) {
    processes[i] = waiting_process("A=b");
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
