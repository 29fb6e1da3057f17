// File: anatomy/expected_step.h (internal)
// The predicted times of a step on a GPU, phase by phase. Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// The seconds that the GPU needs to run the kernels of a phase or step, and that the host needs to
// start them.
struct PhaseTime {
  double kernels = 0, host = 0;
  // A step takes the longer of the two. A phase may take less, because the host does not wait for
  // the GPU and may be phases ahead.
  double seconds() const { return std::max(kernels, host); }
};
using PhaseTimes = std::array<PhaseTime, kPhases>;  // by Phase

// Returns the times of the last step. They are zeros unless the report predicts a GPU.
PhaseTimes expected_phases(const Report& report);
// Returns the sum of the phases' times.
PhaseTime step_time_of(const PhaseTimes& phases);

}  // namespace hasten::anatomy
