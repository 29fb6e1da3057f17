// File: cli/run_with_anatomy.h
// Replaces this process with a program, with the requests of `hasten anatomy` in its environment.
#pragma once

#include <string>

#include "commands/observe_options.h"

namespace hasten::cli {

// Sets the environment variables that a prediction for the device needs, before any other work, for
// the programs that this process starts or is replaced with. Throws IoError if something is missing
// that the prediction needs.
void prepare_prediction(const std::string& device);

// Runs the program, as a dry run if `dry`. Returns only by throwing IoError.
[[noreturn]] void run_with_anatomy(const ObserveOptions& options, bool dry);

}  // namespace hasten::cli
