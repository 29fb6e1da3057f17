// File: autograd/engine.h (internal)
// Replaces LibTorch's autograd engine. LibTorch asks its engine for default hooks each time it
// saves a tensor for the backward pass; this engine asks the innermost SavedTensorPolicy of the
// thread (autograd/saved_tensors.h). After a device has appeared (LibTorch's CUDA library is
// loaded, a GPU is simulated, a TPU is open), another engine is used that has a thread for it:
// LibTorch starts such threads only once in a process. Thread rule: while no other thread runs a
// model.
#pragma once

#include <c10/core/Device.h>

namespace hasten {

// Installs the engine for the rest of the process, at the first call. Without a policy and without
// a listener it behaves as LibTorch's.
void install_engine();

// Call it in a fork of this process that makes backward passes for a simulated GPU: the parent's
// threads are missing there, so the next pass makes an engine with threads of its own.
void forget_engine_of_simulated_gpu();

// Installs the engine if LibTorch's has started without a thread for this device: a backward pass
// through tensors of the device would fail.
void ensure_engine_thread(at::Device device);

}  // namespace hasten
