// File: device/tpu/open_tpu.h (internal)
// What the module libhasten_tpu.so has for libhasten.
#pragma once

#include <cstdint>

// Starts the interpreter, registers torch_tpu's device with LibTorch and connects to the TPU; gives
// the number of this process's devices. `together`: how many processes of this machine run programs
// together, by torch_tpu's variables in the environment; 0 where this one is alone. To be called
// once. Throws hasten::IoError, as device/tpu.h says.
extern "C" std::int64_t hasten_tpu_open(std::int64_t together);

// How many programs have been compiled so far. After hasten_tpu_open, from any thread.
extern "C" std::int64_t hasten_tpu_programs();
