// File: anatomy/expected_step.h (internal)
// The predicted times of a step on a GPU, phase by phase. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// The seconds that the GPU needs to run the kernels of a phase, and that the host needs to start
// them.
struct PhaseTime {
  double kernels = 0, host = 0;
  // A phase takes the longer of the two.
  double seconds() const { return std::max(kernels, host); }
};

// Returns the times of the last step, by Phase. They are zeros unless the report predicts a GPU.
std::array<PhaseTime, kPhases> expected_phases(const Report& report);

}  // namespace hasten::anatomy
