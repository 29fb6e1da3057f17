// File: process/forked_rank.h (internal)
// One process that is a fork of this one and runs a function, in a process group of its own. What
// is left of the group is killed when the process has ended.
//
//   ForkedRank rank(function, {{"RANK", "0"}}, /*threads=*/1);
//   while (!rank.take_end()) poll(...);      // rank.file()
//   if (rank.failed()) throw rank.error(0);
//
// Throws IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/process/notebook_launcher.h"

namespace hasten {

class ForkedRank {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  ForkedRank(const std::function<void()>& function, const Environment& environment, int threads);
  ForkedRank(ForkedRank&& other) noexcept;
  ForkedRank& operator=(ForkedRank&&) = delete;
  ~ForkedRank();  // kills the process where it has not ended

  // Readable when the process has ended; -1 where the system has no such file, and take_end() is to
  // be called now and then.
  int file() const { return process_file_; }
  // Whether the process has ended, and what it has reported. Does not wait.
  bool take_end();
  // Waits until it has.
  void wait_for_end();
  bool ended() const { return status_.has_value(); }
  bool failed() const { return status_.value_or(0) != 0; }
  bool was_stopped() const;  // by a signal to end
  // Because another one was gone, as its exception tells.
  bool failed_by_another() const;
  void send(int signal) const;           // to the process
  void send_to_group(int signal) const;  // to what it has started as well
  RankError error(std::int64_t rank) const;

 private:
  void collect_end();

  pid_t process_ = -1;
  int process_file_ = -1, report_ = -1;
  std::optional<int> status_;
  std::string text_;  // of its exception
};

}  // namespace hasten
