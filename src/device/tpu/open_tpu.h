// File: device/tpu/open_tpu.h (internal)
// What the module libhasten_tpu.so has for libhasten.
#pragma once

#include <cstdint>

// Starts the interpreter, registers torch_tpu's device with LibTorch and connects to the TPU; gives
// the number of its devices. To be called once. Throws hasten::IoError, as device/tpu.h says.
extern "C" std::int64_t hasten_tpu_open();

// How many programs have been compiled so far. After hasten_tpu_open, from any thread.
extern "C" std::int64_t hasten_tpu_programs();
