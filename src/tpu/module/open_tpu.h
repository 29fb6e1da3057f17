// File: tpu/module/open_tpu.h (internal)
// The functions that the module libhasten_tpu.so exports to libhasten.
#pragma once

#include <cstdint>
#include <vector>

#include "base/internal_api.h"
#include "tpu/device/tpu_job.h"

// Starts the interpreter, registers torch_tpu's device with LibTorch and connects to the TPU.
// Returns the number of this process's devices. `slice_processes` is the number of processes on
// this machine that run programs together, as torch_tpu's variables in the environment describe
// them, or 0 if this process is alone. The environment has `variables` during the call; no other
// thread may read it then. May be called again only if it has thrown. Throws hasten::IoError with
// the codes in tpu/device/opened_tpu.h.
extern "C" HASTEN_INTERNAL_API std::int64_t hasten_tpu_open(
    std::int64_t slice_processes, const std::vector<hasten::Variable>& variables);

// Returns how many programs have been compiled so far. May be called after hasten_tpu_open, from
// any thread.
extern "C" HASTEN_INTERNAL_API std::int64_t hasten_tpu_programs();
