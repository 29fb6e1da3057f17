// File: process/fork/forked_rank.h (internal)
// A process that is forked from this one and runs a function in its own process group. When the
// process has ended, the remaining processes of its group are killed. The destructor kills the
// process and its group.
//
//   ForkedRank rank(function, {{"RANK", "0"}}, /*threads=*/1);
//   pollfd end{.fd = rank.descriptor(), .events = POLLIN, .revents = 0};
//   while (!rank.poll_end()) poll(&end, 1, 100);
//   if (rank.failed()) throw rank.error(0);
//
// Throws IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "hasten/process/notebook_launcher.h"

namespace hasten {

class ForkedRank {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  ForkedRank(const std::function<void()>& function, const Environment& environment, int threads);

  // Returns a descriptor that becomes readable when the process has ended. It is -1 on Linux before
  // 5.3, where poll_end() must be called from time to time.
  int descriptor() const { return process_file_.get(); }
  // Collects status and report if the process has ended, and returns whether it has. Does not wait.
  bool poll_end();
  // Waits until the process has ended, and collects status and report.
  void wait_for_end();
  bool has_ended() const { return status_.has_value(); }
  bool failed() const { return status_.value_or(0) != 0; }
  // True if SIGTERM or SIGKILL ended the process.
  bool was_terminated() const;
  // True if the process failed because another one had ended, which its exception or SIGPIPE shows.
  bool failed_because_of_another() const;
  // Sends a signal to the process alone.
  void send(int signal) const { process_->send(signal); }
  // Sends a signal to the process and to the processes that it has started, unless they have left
  // its group.
  void send_to_group(int signal) const { process_->send_to_group(signal); }
  RankError error(std::int64_t rank) const;

 private:
  void collect();

  Descriptor process_file_, report_;
  std::optional<ChildProcess> process_;  // set when the constructor returns
  std::optional<int> status_;
  std::string text_;  // the text of its exception
};

}  // namespace hasten
