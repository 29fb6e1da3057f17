// File: cli/listen.h
// Starts a program in the place of this process, with what `hasten anatomy` asks of it in its
// environment.
#pragma once

#include "hasten/config/listen_options.h"

namespace hasten::cli {

// Finds the compiler of TPUs for the programs that this process starts or becomes, before any work.
// Throws IoError "device.tpu-compiler".
void choose_tpu_compiler();

// Returns only by throwing IoError.
[[noreturn]] void listen(const ListenOptions& options, bool dry);

}  // namespace hasten::cli
