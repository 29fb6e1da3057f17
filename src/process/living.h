// File: process/living.h (internal)
// Counts objects of this process that do not survive a fork. The counts only serve to refuse a fork
// with a clear error. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace hasten {

enum class Living { accelerator, group, tpu };

std::int64_t number_of(Living kind);

// Counts as one object of its kind while it exists.
class LivingMark {
 public:
  explicit LivingMark(Living kind);
  LivingMark(const LivingMark& other) : LivingMark(other.kind_) {}
  LivingMark& operator=(const LivingMark&) { return *this; }
  ~LivingMark();

 private:
  Living kind_;
};

}  // namespace hasten
