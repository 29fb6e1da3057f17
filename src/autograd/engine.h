// File: autograd/engine.h (internal)
// Replaces LibTorch's autograd engine. LibTorch asks its engine for default hooks each time it
// saves a tensor for the backward pass; this engine asks the innermost SavedTensorPolicy of the
// thread (autograd/saved_tensors.h). While a GPU is simulated or a TPU is open, another engine is
// used that has a thread for the device, as LibTorch's engine has for a GPU. Thread rule: while no
// other thread runs a model.
#pragma once

namespace hasten {

// Installs the engine for the rest of the process, at the first call. Without a policy and without
// a listener it behaves as LibTorch's.
void install_engine();

}  // namespace hasten
