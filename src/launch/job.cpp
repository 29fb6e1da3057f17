#include "launch/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

#include "hasten/base/text.h"

namespace hasten {
namespace {

// Processes whose environment has the line; those of other users cannot be read, and are not ours.
std::vector<pid_t> processes_with(const std::string& line) {
  std::vector<pid_t> found;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file("/proc/" + name + "/environ", std::ios::binary);
    std::string environment((std::istreambuf_iterator<char>(file)), {});
    environment.insert(environment.begin(), '\0');
    if (environment.find('\0' + line + '\0') != std::string::npos)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  closedir(folder);
  return found;
}

}  // namespace

std::string new_job() {
  std::random_device random;
  constexpr char kLetters[] = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 16; ++i) name += kLetters[random() % 16];
  return name;
}

int kill_job(const std::string& job, pid_t spared) {
  const std::string line = str(kJobVariable, "=", job);
  int killed = 0;
  // A process may start another one between the look and the kill: until none is seen.
  for (int round = 0; round < 50; ++round) {
    int now = 0;
    for (const pid_t process : processes_with(line)) {
      if (process == getpid() || process == spared) continue;
      if (kill(process, SIGKILL) == 0) ++now;
    }
    if (now == 0) break;
    killed += now;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return killed;
}

Guardian::Guardian(const std::string& job) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;  // without one a rank still dies with the launcher
  process_ = fork();
  if (process_ != 0) {
    close(ends[0]);
    alive_ = ends[1];
    return;
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
  if (got == 0) kill_job(job);  // no word of farewell
  _exit(0);
}

Guardian::~Guardian() {
  if (process_ <= 0) return;
  const char word = 'q';
  [[maybe_unused]] const ssize_t told = write(alive_, &word, 1);
  close(alive_);
  waitpid(process_, nullptr, 0);
}

}  // namespace hasten
