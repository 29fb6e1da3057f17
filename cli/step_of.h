// File: cli/step_of.h
// The step that the options of `hasten estimate` and `hasten plan` describe.
#pragma once

#include "commands/estimate_options.h"
#include "hasten/trainer/estimate.h"

namespace hasten::cli {

EstimateOptions step_of(const EstimateConfiguration& run);

}  // namespace hasten::cli
