// `hasten estimate`: what a training step takes, predicted or measured.
#include "hasten/trainer/estimate.h"

#include <iostream>

#include "commands.h"
#include "hasten/config/estimate_options.h"
#include "hasten/device/memory.h"

namespace hasten::cli {

int estimate(int argc, char** argv) {
  const EstimateConfiguration run =
      parse_estimate(argc - 2, argv + 2, config::process_environment());
  const TrainOptions& options = run.train.options;
  const anatomy::Report report =
      hasten::estimate({.model = options.model,
                        .num_labels = options.num_labels.value_or(0),
                        .hidden_dropout = options.hidden_dropout.value_or(-1),
                        .length = options.dummy_length,
                        .steps = run.steps,
                        .arguments = run.train.arguments,
                        .dry = !run.measure});
  std::cout << (run.json ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace hasten::cli
