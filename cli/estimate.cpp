// `hasten estimate`: what a training step takes, predicted or measured.
#include "hasten/trainer/estimate.h"

#include <iostream>

#include "commands.h"
#include "hasten/config/estimate_options.h"

namespace hasten::cli {

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
  anatomy::Report report = hasten::estimate(asked);
  if (run.measure) report.roofs = anatomy::measure_roofs();
  if (run.what_if || !run.html.empty()) report.alternatives = what_if(asked);
  std::cout << (run.json ? to_json(report) : to_text(report));
  if (!run.html.empty()) write_report(run.html, report);
  return 0;
}

}  // namespace hasten::cli
