// File: autograd/engine.h (internal)
// Replaces LibTorch's autograd engine. LibTorch asks its engine for default hooks each time it
// saves a tensor for the backward pass. This engine asks the innermost SavedTensorPolicy of the
// thread (autograd/saved_tensors.h). LibTorch starts the engine's threads for devices only once in
// a process. So after a new device has appeared (LibTorch's CUDA library is loaded, a GPU is
// simulated, a TPU is open), a new engine is used that has a thread for it. Thread rule: while no
// other thread runs a model.
#pragma once

#include <c10/core/Device.h>

namespace hasten {

// Installs the engine at the first call, for the rest of the process. Without a policy and a
// listener it behaves like LibTorch's engine.
void install_engine();

// Call it in a fork of this process that makes backward passes. The fork does not have the parent's
// threads, so the next pass creates an engine with its own threads.
void reset_engines();

// Installs the engine if LibTorch's engine has started without a thread for this device. Otherwise
// a backward pass through tensors of the device would fail.
void ensure_engine_thread(at::Device device);

}  // namespace hasten
