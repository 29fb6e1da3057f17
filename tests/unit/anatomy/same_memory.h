// Checks that two anatomies have the same memory, byte for byte: a prediction and a measurement.
#pragma once

#include <doctest/doctest.h>

#include "hasten/anatomy/report.h"

namespace hasten {

inline void check_same_memory(const anatomy::Memory& predicted, const anatomy::Memory& measured) {
  CHECK(predicted.peak == measured.peak);
  CHECK(predicted.at_peak == measured.at_peak);
  CHECK(predicted.before == measured.before);
  CHECK(predicted.after == measured.after);
  CHECK(predicted.peak_in_phase == measured.peak_in_phase);
}

}  // namespace hasten
