#include "launch/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/process_handle.h"
#include "launch/process_table.h"

namespace hasten {
namespace {

// Whether the process has the job's name, or that of a job below it, in its environment.
bool has_name(const ProcessEntry& process, const std::string& job) {
  const std::string line = str('\0', kJobVariable, "=", job);
  const std::string environment = str('\0', environment_of(process.shown));
  for (std::size_t at = 0; (at = environment.find(line, at)) != environment.npos; ++at) {
    const char next = environment.c_str()[at + line.size()];
    if (next == '\0' || next == '.') return true;
  }
  return false;
}

// The numbers, as shown, of all that are below `top`.
std::vector<pid_t> below(pid_t top, const std::vector<ProcessEntry>& table) {
  std::vector<pid_t> found = {top};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const ProcessEntry& each : table) {
      if (each.parent == found[i]) found.push_back(each.shown);
    }
  }
  found.erase(found.begin());
  return found;
}

bool kill_if_of_job(const ProcessEntry& entry, bool is_descendant, const std::string& job) {
  const ProcessHandle handle(entry.process);
  const auto now = entry_of(entry.shown);
  if (!now || now->start != entry.start) return false;  // the number is another one's by now
  return (is_descendant || has_name(entry, job)) && handle.send(SIGKILL);
}

int kill_once(const JobProcesses& processes, const ProcessEntry& self) {
  const std::vector<ProcessEntry> table = process_table();
  std::vector<pid_t> descendants;
  if (processes.descendants) descendants = below(self.shown, table);
  int killed = 0;
  for (const ProcessEntry& each : table) {
    // A process that is older than this one, which was there before the first rank, is not of the
    // job. One that is a zombie has ended.
    if (each.state == 'Z' || each.state == 'X' || each.start < self.start) continue;
    if (each.process == self.process || each.process == processes.spared) continue;
    const bool is_descendant =
        std::find(descendants.begin(), descendants.end(), each.shown) != descendants.end();
    killed += kill_if_of_job(each, is_descendant, processes.job);
  }
  return killed;
}

}  // namespace

std::string new_job() {
  std::random_device random;
  constexpr char kLetters[] = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 16; ++i) name += kLetters[random() % 16];
  return name;
}

std::string new_job_below(const char* outer) {
  const bool is_inner = outer != nullptr && *outer != '\0';
  return is_inner ? str(outer, ".", new_job()) : new_job();
}

int kill_job(const JobProcesses& processes) {
  const auto self = own_entry();
  if (!self) return 0;  // a /proc that does not show this process
  int killed = 0;
  // A process may start another one between the look and the kill: until none is seen.
  for (int round = 0; round < 50; ++round) {
    const int now = kill_once(processes, *self);
    if (now == 0) break;
    killed += now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return killed;
}

namespace {

IoError cannot_watch() {
  return IoError("launch.start", {.what = "the process that ends what a killed launcher leaves",
                                  .got = std::strerror(errno)});
}

}  // namespace

Guardian::Guardian(const std::string& job) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw cannot_watch();
  process_ = fork();
  if (process_ != 0) {
    const int error = errno;
    close(ends[0]);
    alive_ = ends[1];
    if (process_ > 0) return;
    close(alive_);
    errno = error;
    throw cannot_watch();
  }
  setsid();  // out of reach of what the terminal or the launcher's group is sent
  prctl(PR_SET_NAME, "hasten-guardian");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  for (int file = 0; file < 1024; ++file) {
    if (file != ends[0]) close(file);
  }
  char word = 0;
  ssize_t got = 0;
  while ((got = read(ends[0], &word, 1)) < 0 && errno == EINTR) {
  }
  if (got == 0) kill_job({.job = job});  // the launcher has not said that it ends
  _exit(0);
}

Guardian::~Guardian() {
  const char word = 'q';
  [[maybe_unused]] const ssize_t told = write(alive_, &word, 1);
  close(alive_);
  waitpid(process_, nullptr, 0);
}

}  // namespace hasten
