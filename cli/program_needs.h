// File: cli/program_needs.h
// Predicts the steps of a program that reads the options of `hasten train`, for `hasten plan`.
#pragma once

#include <string>
#include <vector>

#include "hasten/plan/plan.h"

namespace hasten::cli {

// `hasten` is the command that this process was called as. The program is run dry once for each
// prediction, with the settings as flags after its own arguments. The predictor throws IoError
// "plan.program" if the program makes no step.
StepPredictor program_predictor(const std::string& hasten, const std::vector<std::string>& program,
                                const std::string& device);

}  // namespace hasten::cli
