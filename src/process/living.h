// File: process/living.h (internal)
// What lives in this process and does not survive a fork. Counted for a clear refusal, and for
// nothing else. Thread rule: any thread.
#pragma once

#include <cstdint>

namespace hasten {

enum class Living { accelerator, group, tpu };

std::int64_t number_of(Living kind);

// One of them, while it lives.
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
