// File: process/seats.h (internal)
// How far each rank of one machine is with what they all do, in memory that all of them have: no
// message, and no call of the system where all come at the same time.
//
//   seats.reach(++step);
//   for (each other rank) seats.await(rank, step);
//
// A rank is at most 2^31 steps ahead of another. Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/running_clock.h"

namespace hasten {

class Seats {
 public:
  static std::size_t bytes_for(std::int64_t ranks);

  // `memory`: bytes_for(size) zeros of a SharedMemory, which outlives this. `task`: what the ranks
  // do, for the text of an error.
  Seats(std::byte* memory, std::string task, std::int64_t rank, std::int64_t size);
  Seats(const Seats&) = delete;
  Seats& operator=(const Seats&) = delete;
  ~Seats() { leave(); }

  // The limit of all waiting until the next call of this. Time in which this process is suspended
  // does not count.
  void set_limit(std::chrono::milliseconds limit);
  void reach(std::uint32_t step);
  // This rank comes no more.
  void leave();
  // Asleep until that rank has reached the step. Throws IoError "process.rank-missing" where it has
  // left or ended, or the limit is over.
  void await(std::int64_t rank, std::uint32_t step);
  void await_all(std::uint32_t step);

 private:
  struct Seat;
  Seat& seat(std::int64_t rank) const;
  [[noreturn]] void miss(std::int64_t rank, bool ended) const;

  Seat* seats_;
  std::string task_;
  std::int64_t rank_, size_;
  std::chrono::milliseconds limit_;
  RunningClock clock_;
  RunningClock::Clock::time_point deadline_;
};

}  // namespace hasten
