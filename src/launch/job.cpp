#include "launch/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/process_handle.h"
#include "launch/process_table.h"

namespace hasten {
namespace {

// True if the environment has the name of the job or of a job inside it.
bool belongs_to_job(const std::string& environment, const std::string& job) {
  const std::string line = str('\0', kJobVariable, "=", job);
  const std::string lines = str('\0', environment);
  for (std::size_t at = 0; (at = lines.find(line, at)) != lines.npos; ++at) {
    const char next = lines.c_str()[at + line.size()];
    if (next == '\0' || next == '.') return true;
  }
  return false;
}

// Returns the numbers that /proc shows for all descendants of `top`.
std::vector<pid_t> descendants_of(pid_t top, const std::vector<ProcessEntry>& table) {
  std::vector<pid_t> found = {top};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const ProcessEntry& each : table) {
      if (each.parent_proc_pid == found[i]) found.push_back(each.proc_pid);
    }
  }
  found.erase(found.begin());
  return found;
}

// Kills the process, unless its number now belongs to another process.
bool kill_if_same_process(const ProcessEntry& entry) {
  const ProcessHandle handle(entry.pid);
  const auto now = entry_of(entry.proc_pid);
  return now && now->start == entry.start && handle.send(SIGKILL);
}

// Processes, identified by number and start time.
using KilledProcesses = std::set<std::pair<pid_t, std::uint64_t>>;

// Returns whether there was a process to kill. A killed process may take a long time to end.
bool kill_processes_once(const JobProcesses& processes, const ProcessEntry& self,
                         KilledProcesses& killed) {
  const std::vector<ProcessEntry> table = process_table();
  std::vector<pid_t> descendants;
  if (processes.descendants) descendants = descendants_of(self.proc_pid, table);
  const std::uint64_t oldest = processes.launcher_start.value_or(self.start);
  bool found = false;
  const auto kill_one = [&](const ProcessEntry& entry) {
    if (!kill_if_same_process(entry)) return;
    found = true;
    killed.emplace(entry.pid, entry.start);
  };
  std::vector<ProcessEntry> others;
  std::vector<pid_t> numbers;
  for (const ProcessEntry& each : table) {
    // A process that is older than the launcher does not belong to the job. A zombie has ended.
    if (each.state == 'Z' || each.state == 'X' || each.start < oldest) continue;
    if (each.pid == self.pid || each.pid == processes.cleanup_pid) continue;
    if (std::find(descendants.begin(), descendants.end(), each.proc_pid) != descendants.end()) {
      kill_one(each);
    } else {
      others.push_back(each);
      numbers.push_back(each.proc_pid);
    }
  }
  const auto named = test_environments(numbers, [job = processes.job](const std::string& text) {
    return belongs_to_job(text, job);
  });
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (named[i]) kill_one(others[i]);
  }
  return found;
}

}  // namespace

std::string new_job_name() {
  std::random_device random;
  constexpr char kLetters[] = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 16; ++i) name += kLetters[random() % 16];
  return name;
}

std::string new_inner_job_name(const char* outer) {
  const bool is_inner = outer != nullptr && *outer != '\0';
  return is_inner ? str(outer, ".", new_job_name()) : new_job_name();
}

int kill_job(const JobProcesses& processes) {
  const auto self = own_entry();
  if (!self) return 0;  // a /proc that does not show this process
  KilledProcesses killed;
  // A process may start another one between the scan and the kill.
  for (int round = 0; round < 50 && kill_processes_once(processes, *self, killed); ++round)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return static_cast<int>(killed.size());
}

namespace {

// Closes all files except `kept`. The limit on open files may have been raised, so kernels from 5.9
// on close the files as a range instead of one by one.
void close_all_but(int kept) {
#ifdef SYS_close_range
  const auto first = static_cast<unsigned>(kept);
  if (syscall(SYS_close_range, first + 1, ~0U, 0) == 0 &&
      (first == 0 || syscall(SYS_close_range, 0, first - 1, 0) == 0))
    return;
#endif
  for (long file = 0; file < sysconf(_SC_OPEN_MAX); ++file) {
    if (file != kept) close(static_cast<int>(file));
  }
}

// The main function of the cleanup process. `pipe_end` is one end of a pipe. Only the launcher
// holds the other end.
[[noreturn]] void run_cleanup_process(int pipe_end, const JobProcesses& processes) {
  setsid();  // out of reach of signals to the terminal or to the launcher's group
  prctl(PR_SET_NAME, "hasten-cleanup");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  close_all_but(pipe_end);
  char byte = 0;
  while (read(pipe_end, &byte, 1) < 0 && errno == EINTR) {
  }
  kill_job({.job = processes.job, .launcher_start = processes.launcher_start});
  _exit(0);
}

}  // namespace

CleanupProcess::CleanupProcess(JobProcesses& processes) : processes_(processes) {
  if (const auto self = own_entry()) processes_.launcher_start = self->start;
  const int error = start();
  if (error != 0)
    throw IoError("launch.start", {.what = "starting the cleanup process",
                                   .got = std::strerror(error),
                                   .expected = "a process that cleans up if the launcher is killed",
                                   .hint = "raise ulimit -u or the control group's pids.max"});
}

CleanupProcess::~CleanupProcess() { end(); }

// A cleanup process that replaces another one is forked from a process with threads. It does not
// call exec, because the launcher may be part of any program. The C library keeps its allocator
// usable after fork.
int CleanupProcess::start() {
  auto pipe = ChildPipe::open();
  if (!pipe) return errno;
  ChildProcess process({.signal_at_parent_end = 0},
                       [&] { run_cleanup_process(pipe->read_end.get(), processes_); });
  if (process.error() != 0) return process.error();
  pipe_ = std::move(pipe->write_end);
  processes_.cleanup_pid = process.number();
  process_.emplace(std::move(process));
  return 0;
}

// ChildProcess uses SIGKILL, because a stopped cleanup process reacts to no other signal, and the
// launcher would wait for it forever.
void CleanupProcess::end() {
  process_.reset();
  pipe_.close();
  processes_.cleanup_pid = -1;
}

bool CleanupProcess::has_ended() const {
  return !process_ || process_->state() != ChildState::running;
}

std::string CleanupProcess::replace_if_ended() {
  if (!has_ended()) return "";
  end();
  const int error = start();
  if (error == 0) {
    failure_is_reported_ = false;
    return "the cleanup process was killed; a new one has been started";
  }
  if (failure_is_reported_) return "";
  failure_is_reported_ = true;
  return str("the cleanup process was killed, and a new one could not be started: ",
             std::strerror(error), ". If this launcher is killed, processes may keep running");
}

}  // namespace hasten
