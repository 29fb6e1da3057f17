#include "launch/process_table.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/parse_number.h"
#include "base/process_state.h"
#include "base/start_thread.h"

namespace hasten {
namespace {

constexpr auto kMaxReadTime = std::chrono::seconds(1);

std::string folder_of(pid_t proc_pid) { return "/proc/" + std::to_string(proc_pid); }

// Returns the process's number in each PID namespace, from the namespace of /proc down to its own.
std::vector<pid_t> numbers_of(pid_t proc_pid) {
  const std::string status = proc_file_content(folder_of(proc_pid) + "/status");
  const std::size_t at = status.find("\nNSpid:");
  if (at == status.npos) return {};
  std::istringstream words(status.substr(at + 7, status.find('\n', at + 1) - at - 7));
  std::vector<pid_t> numbers;
  for (pid_t number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

// Describes how this process appears in /proc.
struct ProcView {
  pid_t proc_pid = -1;
  std::size_t depth = 0;  // levels of its PID namespace below the one of /proc
};

std::optional<ProcView> find_proc_view() {
  char link[32] = "";
  if (readlink("/proc/self", link, sizeof link - 1) <= 0) return std::nullopt;
  const auto proc_pid = parse_number<pid_t>(link);
  if (!proc_pid) return std::nullopt;
  if (*proc_pid == getpid()) return ProcView{*proc_pid, 0};
  const std::vector<pid_t> numbers = numbers_of(*proc_pid);
  if (numbers.empty() || numbers.back() != getpid()) return std::nullopt;
  return ProcView{*proc_pid, numbers.size() - 1};
}

std::optional<ProcessEntry> read_entry(const ProcView& here, pid_t proc_pid) {
  const auto status = process_status(std::to_string(proc_pid));
  if (!status) return std::nullopt;
  ProcessEntry entry{.proc_pid = proc_pid,
                     .pid = proc_pid,
                     .parent_proc_pid = static_cast<pid_t>(status->parent),
                     .state = status->state,
                     .start = status->started};
  if (here.depth == 0) return entry;
  const std::vector<pid_t> numbers = numbers_of(proc_pid);
  if (numbers.size() <= here.depth) return std::nullopt;  // outside of this namespace
  entry.pid = numbers[here.depth];
  return entry;
}

}  // namespace

std::optional<ProcessEntry> own_entry() {
  const auto here = find_proc_view();
  return here ? read_entry(*here, here->proc_pid) : std::nullopt;
}

std::optional<ProcessEntry> entry_of(pid_t proc_pid) {
  const auto here = find_proc_view();
  return here ? read_entry(*here, proc_pid) : std::nullopt;
}

std::vector<ProcessEntry> process_table() {
  std::vector<ProcessEntry> table;
  const auto here = find_proc_view();
  DIR* const folder = here ? opendir("/proc") : nullptr;
  if (folder == nullptr) return table;
  while (const dirent* file = readdir(folder)) {
    const auto proc_pid = parse_number<pid_t>(file->d_name);
    if (!proc_pid) continue;
    if (const auto entry = read_entry(*here, *proc_pid)) table.push_back(*entry);
  }
  closedir(folder);
  return table;
}

std::string environment_of(pid_t proc_pid) {
  return proc_file_content(folder_of(proc_pid) + "/environ");
}

namespace {

// Reads all environments in one thread. A thread that hangs is abandoned, and another one continues
// with the next process.
struct EnvironmentReader {
  EnvironmentReader(std::vector<pid_t> proc_pids, std::function<bool(const std::string&)> function)
      : processes(std::move(proc_pids)), predicate(std::move(function)) {}

  void run() {
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const bool found = predicate(environment_of(processes[i]));
      const std::lock_guard<std::mutex> lock(this->mutex);
      results.push_back(found);
      result_added.notify_one();
    }
  }

  // Waits until all environments are read or one takes too long. Returns the results so far.
  std::vector<bool> wait() {
    std::unique_lock<std::mutex> lock(this->mutex);
    for (std::size_t had = 0; results.size() < processes.size(); had = results.size()) {
      if (!result_added.wait_for(lock, kMaxReadTime, [&] { return results.size() > had; })) break;
    }
    return results;
  }

  const std::vector<pid_t> processes;
  const std::function<bool(const std::string&)> predicate;
  std::mutex mutex;
  std::condition_variable result_added;
  std::vector<bool> results;
};

// A folder in /proc belongs to the owner of its process, or to root.
bool may_be_read(pid_t proc_pid) {
  if (geteuid() == 0) return true;
  struct stat folder {};
  return stat(folder_of(proc_pid).c_str(), &folder) == 0 && folder.st_uid == geteuid();
}

}  // namespace

std::vector<bool> test_environments(const std::vector<pid_t>& proc_pids,
                                    const std::function<bool(const std::string&)>& predicate) {
  std::vector<bool> found(proc_pids.size(), false);
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < proc_pids.size(); ++i) {
    if (may_be_read(proc_pids[i])) left.push_back(i);
  }
  while (!left.empty()) {
    std::vector<pid_t> processes;
    for (const std::size_t i : left) processes.push_back(proc_pids[i]);
    const auto reader = std::make_shared<EnvironmentReader>(std::move(processes), predicate);
    std::thread thread = start_thread([reader] { reader->run(); });
    if (!thread.joinable()) reader->run();
    const std::vector<bool> results = reader->wait();
    for (std::size_t i = 0; i < results.size(); ++i) found[left[i]] = results[i];
    if (thread.joinable() && results.size() == left.size()) {
      thread.join();
    } else if (thread.joinable()) {
      thread.detach();
    }
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(
                                                std::min(results.size() + 1, left.size())));
  }
  return found;
}

}  // namespace hasten
