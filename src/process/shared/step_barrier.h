// File: process/shared/step_barrier.h (internal)
// Shows in shared memory which step of a common task each rank of one machine has reached. It needs
// no messages, and no system calls if all ranks arrive at the same time.
//
//   barrier.reach(++step);
//   barrier.await_all(step);      // or await(rank, step) for a single rank
//
// A rank must be less than 2^31 steps ahead of another. Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/running_clock.h"

namespace hasten {

class StepBarrier {
 public:
  static std::size_t bytes_for(std::int64_t ranks);

  // `memory` points to bytes_for(size) zero bytes of a SharedMemory, which must outlive this
  // object. `task_name` names the common task in the text of an error. `size` is the number of
  // ranks.
  StepBarrier(std::byte* memory, std::string task_name, std::int64_t rank, std::int64_t size);
  StepBarrier(const StepBarrier&) = delete;
  StepBarrier& operator=(const StepBarrier&) = delete;
  ~StepBarrier() { leave(); }

  // Sets the limit, counted from now, for all waits until the next call of set_limit(). Time in
  // which this process is suspended does not count.
  void set_limit(std::chrono::milliseconds limit);
  // Announces that this rank has reached the step.
  void reach(std::uint32_t step);
  // Announces that this rank will reach no more steps.
  void leave();
  // Sleeps until `rank` has reached the step. Throws IoError "process.rank-missing" if that rank
  // has left or ended, or if the limit has passed.
  void await(std::int64_t rank, std::uint32_t step);
  // Waits for all other ranks in this way.
  void await_all(std::uint32_t step);

 private:
  struct RankSlot;
  RankSlot& slot(std::int64_t rank) const;
  [[noreturn]] void throw_missing(std::int64_t rank, bool ended) const;

  RankSlot* slots_;
  std::string task_name_;
  std::int64_t rank_, size_;
  std::chrono::milliseconds limit_;
  RunningClock clock_;
  RunningClock::Clock::time_point deadline_;
};

}  // namespace hasten
