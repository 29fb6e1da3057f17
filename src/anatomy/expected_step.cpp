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

std::array<PhaseTime, kPhases> expected_phases(const Report& report) {
  std::array<PhaseTime, kPhases> phases{};
  for (const Operation& each : report.operations) {
    PhaseTime& phase = phases[static_cast<std::size_t>(each.phase)];
    phase.kernels += each.kernel_seconds;
    phase.host += each.host_seconds;
  }
  return phases;
}

std::optional<StepTime> expected_step_time(const Report& report) {
  StepTime step;
  for (const PhaseTime& each : expected_phases(report)) {
    step.kernels += each.kernels;
    step.host += each.host;
  }
  step.seconds = std::max(step.kernels, step.host);
  if (step.kernels <= 0) return {};
  const bool waits_for_host = step.seconds > 1.1 * step.kernels;
  step.uncertainty = waits_for_host              ? kUncertaintyOfHost
                     : uses_tensor_cores(report) ? kUncertaintyOfTensorCores
                                                 : kUncertainty;
  return step;
}

}  // namespace hasten::anatomy
