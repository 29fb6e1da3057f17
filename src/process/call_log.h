// File: process/call_log.h (internal)
// The collectives of one rank in one group: which are on their way, and the latest that are over.
//
//   const std::int64_t number = log.begin(Call::of("all_reduce", tensors));
//   ...
//   log.end(number);
//
// Thread rule: any thread; a call costs a lock that nobody else holds for long.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "process/call.h"

namespace hasten {

class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    Call call;
    std::int64_t number = 0;  // the first is 1
    Clock::time_point began, ended;
    bool over = false;
  };
  struct Snapshot {
    std::int64_t begun = 0;  // the number of the latest
    std::int64_t step = 0;   // steps of training that are done
    pid_t thread = 0;        // that began the latest; 0: none has
    std::vector<Entry> entries;
  };

  std::int64_t begin(const Call& call);
  void end(std::int64_t number);

  // What the calls from here on are for; gives what held before.
  struct Purpose {
    const char* text = nullptr;
    std::int64_t index = -1;
  };
  Purpose set_purpose(Purpose purpose);
  void set_step(std::int64_t done);

  // When the oldest call that is on its way began.
  std::optional<Clock::time_point> waits_since() const;
  // When a call last began or ended.
  Clock::time_point last_sign() const;
  Snapshot snapshot() const;

 private:
  mutable std::mutex turn_;
  std::deque<Entry> entries_;
  std::int64_t begun_ = 0, step_ = 0;
  pid_t thread_ = 0;
  Purpose purpose_;
  Clock::time_point last_sign_ = Clock::now();
};

}  // namespace hasten
