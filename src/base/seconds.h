// File: base/seconds.h (internal)
// Converts durations to seconds.
//
//   const auto began = std::chrono::steady_clock::now();
//   const double seconds = seconds_since(began);
//
// Thread rule: pure functions.
#pragma once

#include <chrono>

namespace hasten {

template <class Number, class Period>
double seconds_of(std::chrono::duration<Number, Period> time) {
  return std::chrono::duration<double>(time).count();
}

inline double seconds_since(std::chrono::steady_clock::time_point then) {
  return seconds_of(std::chrono::steady_clock::now() - then);
}

}  // namespace hasten
