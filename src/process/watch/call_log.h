// File: process/watch/call_log.h (internal)
// Records the collectives of one rank in one group: those in progress and the latest ones that have
// ended.
//
//   const std::int64_t number = log.begin(Call::of("all_reduce", tensors));
//   ...
//   log.end(number);
//
// Thread rule: any thread. Each function takes a lock that is never held for long.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "process/watch/call.h"

namespace hasten {

class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    Call call;
    std::int64_t number = 0;  // counts from 1
    Clock::time_point began, ended;
    bool over = false;
  };
  struct Snapshot {
    std::int64_t begun = 0;  // the number of the latest call that has begun
    std::int64_t step = 0;   // completed optimizer steps
    pid_t thread = 0;        // the thread of the latest call; 0 before the first
    std::vector<Entry> entries;
  };

  std::int64_t begin(const Call& call);
  void end(std::int64_t number);

  // The purpose of calls and its index, as in Call.
  struct Purpose {
    const char* text = nullptr;
    std::int64_t index = -1;
  };
  // Sets the purpose of all later calls and returns the previous one.
  Purpose set_purpose(Purpose purpose);
  void set_step(std::int64_t done);

  // The time at which the oldest call in progress began, or nothing if none is in progress.
  std::optional<Clock::time_point> oldest_call_start() const;
  // The time at which a call last began or ended; before the first call, the time at which the log
  // was made.
  Clock::time_point last_activity() const;
  Snapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;
  std::int64_t begun_ = 0, step_ = 0;
  pid_t thread_ = 0;
  Purpose purpose_;
  Clock::time_point last_activity_ = Clock::now();
};

}  // namespace hasten
