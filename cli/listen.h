// File: cli/listen.h
// Replaces this process by a program that finds in its environment what `hasten anatomy` or `hasten
// estimate` asks of it.
#pragma once

#include "hasten/config/listen_options.h"

namespace hasten::cli {

// Finds the compiler for TPUs, before any other work, and sets its variable for the programs that
// this process starts or becomes. Keeps the variable if it is set. Throws IoError
// "device.tpu-compiler".
void choose_tpu_compiler();

// Runs the program in place of this process, as a dry run if `dry`. Returns only by throwing
// IoError.
[[noreturn]] void listen(const ListenOptions& options, bool dry);

}  // namespace hasten::cli
