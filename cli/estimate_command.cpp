// `hasten estimate`: predicts or measures what a training step takes.
#include "hasten/trainer/estimate.h"

#include <iostream>

#include "commands/estimate_options.h"
#include "commands/predicted_device.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/plan/plan.h"
#include "to_estimate_options.h"
#include "torch_commands.h"
#include "tpu/print_tpu_estimate.h"

namespace hasten::cli {
namespace {

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
  if (const auto exit_code = print_tpu_estimate(requested, run)) return *exit_code;
  anatomy::Report report = hasten::estimate(requested);
  add_roofs(report);
  if (report.memory.out_of_memory) report.notes.push_back(note_of_fitting_batch(requested));
  if (run.compares_changes()) {
    report.what_if =
        compare_changes({.step = requested, .memory = memory_limit_of(requested.device)});
  }
  std::cout << (run.json ? to_json(report) : to_text(report));
  if (!run.html.empty()) write_report(run.html, report);
  if (!run.output.empty()) write_report(run.output, report);
  return 0;
}

}  // namespace hasten::cli
