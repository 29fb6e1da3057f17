// File: hasten/prepare/detail/convert_weights.h
// Converts the weights of a module to another type, for training with weights in bfloat16.
//
//   convert_weights(*net, at::kBFloat16);   // before optimizers are made
//
// It converts the floating-point parameters, their gradients and the buffers in place: tensors keep
// their identity, so an optimizer that holds a parameter holds it in the new type. Unlike
// Module::to(type), it leaves whole numbers, such as ids and counts of batches, as they are, and
// parameters that share memory still share it. At most one tensor at a time has two copies. Thread
// rule: one thread at a time for a module.
#pragma once

#include <torch/nn/module.h>

#include "hasten/base/detail/export.h"

namespace hasten {

HASTEN_API void convert_weights(torch::nn::Module& module, at::ScalarType type);

}  // namespace hasten
