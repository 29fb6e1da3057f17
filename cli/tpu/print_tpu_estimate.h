// File: cli/tpu/print_tpu_estimate.h
// The estimate of `hasten estimate` for a TPU, which has a form of its own.
#pragma once

#include <optional>

#include "commands/estimate_options.h"
#include "hasten/trainer/estimate.h"

namespace hasten::cli {

// Makes and prints the estimate, and returns the exit code: 1 if the step does not fit. Returns
// nothing if the device is not a TPU.
std::optional<int> print_tpu_estimate(const EstimateOptions& requested,
                                      const EstimateConfiguration& run);

}  // namespace hasten::cli
