// File: cli/to_estimate_options.h
// The step that the options of `hasten estimate` and `hasten plan` describe.
#pragma once

#include "commands/estimate_options.h"
#include "hasten/trainer/estimate.h"

namespace hasten::cli {

EstimateOptions to_estimate_options(const EstimateConfiguration& run);

}  // namespace hasten::cli
