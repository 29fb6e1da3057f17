// `hasten estimate`: what a training step takes, predicted or measured.
#include "hasten/trainer/estimate.h"

#include <iostream>

#include "commands.h"
#include "hasten/base/text.h"
#include "hasten/config/estimate_options.h"
#include "hasten/config/tpus.h"

namespace hasten::cli {
namespace {

// The anatomy's own prediction first: a dry TPU is the process's last device.
int estimate_tpu(const EstimateOptions& asked, bool json) {
  EstimateOptions on_cpu = asked;
  on_cpu.device = "cpu";
  const anatomy::TpuPrediction prediction = anatomy::prediction_of(hasten::estimate(on_cpu));
  const anatomy::TpuAccount account = estimate_for_tpu(asked);
  std::cout << (json ? to_json(account, &prediction) : to_text(account, &prediction));
  return account.failed.empty() || !fits(account) ? 0 : 1;
}

}  // namespace

int estimate(int argc, char** argv) {
  const EstimateConfiguration run =
      parse_estimate(argc - 2, argv + 2, config::process_environment());
  const TrainOptions& options = run.train.options;
  const EstimateOptions asked{.model = options.model,
                              .num_labels = options.num_labels.value_or(0),
                              .hidden_dropout = options.hidden_dropout.value_or(-1),
                              .attn_implementation = options.attn_implementation,
                              .length = options.dummy_length,
                              .mode = run.mode,
                              .steps = run.steps,
                              .arguments = run.train.arguments,
                              .dry = !run.measure,
                              .device = run.device};
  if (starts_with(run.device, kTpuDevice)) return estimate_tpu(asked, run.json);
  anatomy::Report report = hasten::estimate(asked);
  if (run.measure) report.roofs = anatomy::measure_roofs();
  if (run.what_if || !run.html.empty()) report.alternatives = what_if(asked);
  std::cout << (run.json ? to_json(report) : to_text(report));
  if (!run.html.empty()) write_report(run.html, report);
  return 0;
}

}  // namespace hasten::cli
