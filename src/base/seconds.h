// File: base/seconds.h (internal)
// Converts durations to seconds. Thread rule: a pure function.
#pragma once

#include <chrono>

namespace hasten {

template <class Number, class Period>
double seconds_of(std::chrono::duration<Number, Period> time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace hasten
