// File: process/watch/call_log.h (internal)
// Describes calls of collectives, and records the calls of one rank in one group: the calls in
// progress and the latest ones that have ended.
//
//   const std::int64_t number = log.begin(Call::of("all_reduce", tensors));
//   ...
//   log.end(number);
//
// Thread rule: any thread. Each function of the log takes a lock that is never held for long.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

// One call of a collective: its operation and tensors. A rank makes one for every call, so it
// allocates no memory. Its text is built only on request.
struct Call {
  // At most this many sizes of the first tensor are kept. Other tensors are only counted.
  static constexpr std::size_t kDimensions = 6;

  const char* operation = "";  // such as "all_reduce"; a string of static lifetime
  std::int64_t tensors = 0;
  std::int64_t elements = 0;  // the sum over all tensors
  at::ScalarType type = at::kFloat;
  std::array<std::int64_t, kDimensions> sizes{};
  std::int64_t dimensions = 0;
  std::int64_t root = -1;      // -1 if the operation has none
  const char* reduction = "";  // such as "max"; empty for a sum or if there is no reduction
  // A digest of the operation, the type and shape of every tensor, the root and the reduction. It
  // must be the same on all ranks.
  std::uint64_t fingerprint = 0;
  // The purpose that the enclosing CallScope states, or null. A string of static lifetime.
  const char* purpose = nullptr;
  // The index that the enclosing CallScope states, or -1.
  std::int64_t index = -1;

  static Call of(const char* operation, at::TensorList tensors);
  static Call rooted(const char* operation, at::TensorList tensors, std::int64_t root);
  static Call reducing(const char* operation, at::TensorList tensors, const char* reduction);

  // Examples: "all_reduce of 4 x 512 float", "all_reduce (max) of one long", "broadcast of 3 float,
  // root 1".
  std::string text() const;
  // Returns the same text followed by the purpose and the index, such as " (gradients, bucket 3)".
  std::string text_with_purpose() const;

 private:
  std::string tensors_text() const;
};

// Returns the English ordinal of a number, such as "37th".
std::string ordinal(std::int64_t number);

class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    Call call;
    std::int64_t number = 0;  // counts from 1
    Clock::time_point began, ended;
    bool is_done = false;
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
