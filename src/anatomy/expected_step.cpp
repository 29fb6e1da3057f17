#include "anatomy/expected_step.h"

#include <algorithm>

namespace hasten::anatomy {
namespace {

// Nine out of ten measured steps of the labels are within the first figure (docs/gpu.md,
// "Accuracy"). The steps with tensor cores that were measured on an H200 are within 11 %, but the
// model is fitted to them and no other card has such a measurement, so the second figure is larger.
// A step that waits for the host depends on the host's processor.
constexpr double kUncertainty = 0.15, kUncertaintyOfTensorCores = 0.25, kUncertaintyOfHost = 0.35;

bool uses_tensor_cores(const Report& report) {
  return report.roofs.tf32_flops_per_second > 0 ||
         std::any_of(report.operations.begin(), report.operations.end(), [](const Operation& each) {
           return each.group == OperationGroup::tensor_contraction && each.half_flops > 0;
         });
}

}  // namespace

PhaseTimes expected_phases(const Report& report) {
  PhaseTimes phases{};
  for (const Operation& each : report.operations) {
    PhaseTime& phase = phases[static_cast<std::size_t>(each.phase)];
    phase.kernels += each.kernel_seconds;
    phase.host += each.host_seconds;
  }
  return phases;
}

PhaseTime step_time_of(const PhaseTimes& phases) {
  PhaseTime sum;
  for (const PhaseTime& each : phases) {
    sum.kernels += each.kernels;
    sum.host += each.host;
  }
  return sum;
}

std::optional<StepTime> expected_step_time(const Report& report) {
  const PhaseTime sum = step_time_of(expected_phases(report));
  if (sum.kernels <= 0) return {};
  StepTime step;
  step.kernels = sum.kernels;
  step.host = sum.host;
  step.seconds = sum.seconds();
  const bool waits_for_host = step.seconds > 1.1 * step.kernels;
  step.uncertainty = waits_for_host              ? kUncertaintyOfHost
                     : uses_tensor_cores(report) ? kUncertaintyOfTensorCores
                                                 : kUncertainty;
  return step;
}

}  // namespace hasten::anatomy
