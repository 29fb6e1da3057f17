#include "tpu/print_tpu_estimate.h"

#include <iostream>
#include <string>
#include <utility>

#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "tpu/machine/tpus.h"

namespace hasten::cli {

// After a dry run for a TPU, a process cannot use a different device. So the comparison, which uses
// forks, and the anatomy's prediction come first.
std::optional<int> print_tpu_estimate(const EstimateOptions& requested,
                                      const EstimateConfiguration& run) {
  if (!starts_with(requested.device, kTpuDevice)) return std::nullopt;
  std::optional<anatomy::StepComparison> comparison;
  if (run.compares_changes()) {
    comparison = compare_changes({.step = requested}, [](const std::string& name) {
      std::cerr << "what if: " << name << '\n';
    });
  }
  EstimateOptions on_cpu = requested;
  on_cpu.device = "cpu";
  const anatomy::TpuPrediction prediction = anatomy::to_prediction(hasten::estimate(on_cpu));
  anatomy::TpuEstimate estimate = estimate_for_tpu(requested);
  estimate.what_if = std::move(comparison);
  std::cout << (run.json ? to_json(estimate, &prediction) : to_text(estimate, &prediction));
  if (!run.html.empty()) write_tpu_estimate(run.html, estimate, &prediction);
  if (!run.output.empty()) write_tpu_estimate(run.output, estimate, &prediction);
  return estimate.failed.empty() || !fits(estimate) ? 0 : 1;
}

}  // namespace hasten::cli
