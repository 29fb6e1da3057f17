// `hasten estimate`: predicts or measures what a training step takes.
#include "hasten/trainer/estimate.h"

#include <iostream>
#include <optional>
#include <utility>

#include "commands/estimate_options.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/plan/plan.h"
#include "to_estimate_options.h"
#include "torch_commands.h"
#include "tpu/machine/tpus.h"

namespace hasten::cli {
namespace {

// For a GPU, the limit of the comparison is its memory; the CPU and a TPU have no limit.
anatomy::StepComparison what_if(const EstimateOptions& requested, const OnChange& on_begin = {}) {
  const bool is_gpu = requested.device != "cpu" && !starts_with(requested.device, kTpuDevice);
  return compare_changes(
      {.step = requested, .memory = is_gpu ? find_gpu(requested.device).memory : 0}, on_begin);
}

bool asks_what_if(const EstimateConfiguration& run) { return run.what_if || !run.html.empty(); }

// After a dry run for a TPU, a process cannot use a different device. So the comparison, which uses
// forks, and the anatomy's prediction come first.
int estimate_tpu(const EstimateOptions& requested, const EstimateConfiguration& run) {
  std::optional<anatomy::StepComparison> comparison;
  if (asks_what_if(run)) {
    comparison = what_if(requested,
                         [](const std::string& name) { std::cerr << "what if: " << name << '\n'; });
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

// Returns a note about the largest batch that fits the GPU for which the estimate was made.
std::string note_of_fitting_batch(const EstimateOptions& requested) {
  const FittingBatch batch = largest_fitting_batch(requested, find_gpu(requested.device).memory);
  if (batch.rows == 0)
    return str("not even one row fits: one row needs ", human_bytes(batch.needed));
  return str("a batch of ", batch.rows,
             batch.rows == 1 ? " row fits: " : " rows fits: ", "it needs ",
             human_bytes(batch.needed));
}

}  // namespace

int estimate(int argc, char** argv) {
  const EstimateConfiguration run =
      parse_estimate({argv + 2, argv + argc}, config::process_environment());
  const EstimateOptions requested = to_estimate_options(run);
  if (starts_with(run.device, kTpuDevice)) return estimate_tpu(requested, run);
  anatomy::Report report = hasten::estimate(requested);
  add_roofs(report);
  if (report.memory.out_of_memory) report.notes.push_back(note_of_fitting_batch(requested));
  if (asks_what_if(run)) report.what_if = what_if(requested);
  std::cout << (run.json ? to_json(report) : to_text(report));
  if (!run.html.empty()) write_report(run.html, report);
  if (!run.output.empty()) write_report(run.output, report);
  return 0;
}

}  // namespace hasten::cli
