// File: process/fork/fork_safety.h (internal)
// Answers whether a process may fork, and prepares it for that.
//
//   if (count_of(ForkHazard::group) > 0) throw ...;   // refuses the fork with a clear error
//   pause_openmp();
//
// The counts are those of objects of this process that do not survive a fork. Devices answer for
// themselves (Device::check_fork). Thread rule: any thread.
#pragma once

#include <cstdint>

namespace hasten {

enum class ForkHazard { accelerator, group };

std::int64_t count_of(ForkHazard kind);

// Counts as one object of its kind while it exists.
class ForkHazardMark {
 public:
  explicit ForkHazardMark(ForkHazard kind);
  ForkHazardMark(const ForkHazardMark& other) : ForkHazardMark(other.kind_) {}
  ForkHazardMark& operator=(const ForkHazardMark&) { return *this; }
  ~ForkHazardMark();

 private:
  ForkHazard kind_;
};

// Ends the threads of every OpenMP library in the process; the libraries start them again when they
// are needed. Call it before a fork, which would wait for these threads for ever, as it has none of
// them.
void pause_openmp();

}  // namespace hasten
