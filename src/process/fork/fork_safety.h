// File: process/fork/fork_safety.h (internal)
// Checks whether a process may fork, and prepares it for a fork.
//
//   if (count_of(ForkHazard::group) > 0) throw ...;   // refuses the fork with a clear error
//   pause_openmp();
//
// count_of() counts the objects of this process that do not survive a fork. Devices have their own
// check (Device::check_fork). Thread rule: any thread.
#pragma once

#include <cstdint>

namespace hasten {

enum class ForkHazard { accelerator, group };

std::int64_t count_of(ForkHazard kind);

// Counts as one object of its kind while it exists.
class ScopedForkHazard {
 public:
  explicit ScopedForkHazard(ForkHazard kind);
  ScopedForkHazard(const ScopedForkHazard& other) : ScopedForkHazard(other.kind_) {}
  ScopedForkHazard& operator=(const ScopedForkHazard&) { return *this; }
  ~ScopedForkHazard();

 private:
  ForkHazard kind_;
};

// Ends the threads of every OpenMP library in the process; the libraries start them again when they
// are needed. Call it before a fork. Otherwise the child would wait forever for these threads,
// which it does not have.
void pause_openmp();

}  // namespace hasten
