// File: cli/run_with_anatomy.h
// Replaces this process with a program, with the requests of `hasten anatomy` in its environment.
#pragma once

#include "commands/observe_options.h"

namespace hasten::cli {

// Finds the compiler for TPUs, before any other work, for the programs that this process starts or
// is replaced with. Throws IoError "device.tpu-compiler".
void choose_tpu_compiler();

// Runs the program, as a dry run if `dry`. Returns only by throwing IoError.
[[noreturn]] void run_with_anatomy(const ObserveOptions& options, bool dry);

}  // namespace hasten::cli
