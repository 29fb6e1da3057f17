// File: process/fork/fork_hazards.h (internal)
// Counts objects of this process that do not survive a fork. The counts only serve to refuse a fork
// with a clear error. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace hasten {

enum class ForkHazard { accelerator, group, tpu };

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

}  // namespace hasten
