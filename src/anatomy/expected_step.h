// File: anatomy/expected_step.h (internal)
// The times of a step on a GPU that was predicted, phase by phase. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// The seconds in which the GPU runs the kernels of a phase, and the host starts them.
struct PhaseTime {
  double kernels = 0, host = 0;
  // A phase takes the longer of the two.
  double seconds() const { return std::max(kernels, host); }
};

// By Phase, of the last step; zeros unless the report predicts a GPU.
std::array<PhaseTime, kPhases> expected_phases(const Report& report);

}  // namespace hasten::anatomy
