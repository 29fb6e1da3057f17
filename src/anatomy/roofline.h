// File: anatomy/roofline.h (internal)
// The seconds that an operation of a report takes at the roofs of the report. One function counts
// the arithmetic, at the rate of its types; the other counts the bytes that it moves. Work outside
// of the steps is left out.
//
//   std::max(compute_seconds(each, report), memory_seconds(each, report));
//
// The roofs of the report must be known. Thread rule: pure functions.
#pragma once

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// Without a roof for 16-bit numbers, their operations are computed at the rate of float.
double compute_seconds(const Operation& each, const Report& report);
double memory_seconds(const Operation& each, const Report& report);

}  // namespace hasten::anatomy
