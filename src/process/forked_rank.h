// File: process/forked_rank.h (internal)
// One process that is a fork of this one and runs a function.
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

  // Throws IoError "process.fork".
  ForkedRank(const std::function<void()>& function, const Environment& environment, int threads);
  ForkedRank(ForkedRank&& other) noexcept;
  ForkedRank& operator=(ForkedRank&&) = delete;
  ~ForkedRank();

  // Readable when the process has ended.
  int file() const { return report_; }
  // Takes its end; to be called when the file is readable, or to wait for it.
  void take_end();
  bool ended() const { return status_.has_value(); }
  bool failed() const { return status_.value_or(0) != 0; }
  bool was_stopped() const;  // by a signal to end
  // Because another one was gone, as its exception tells.
  bool failed_by_another() const;
  void send(int signal) const;
  RankError error(std::int64_t rank) const;

 private:
  pid_t process_ = -1;
  int report_ = -1;
  std::optional<int> status_;
  std::string text_;  // of its exception
};

}  // namespace hasten
