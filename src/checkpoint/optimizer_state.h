// File: checkpoint/optimizer_state.h (internal)
// Converts an optimizer's state to named tensors and back, for hasten::AdamW, all optimizers of
// LibTorch (Adagrad, Adam, AdamW, LBFGS, RMSprop, SGD) and classes that derive from
// StatefulOptimizer. A class that derives from one of the former is refused, because it may keep
// state that nothing here knows.
//
//   TensorDict saved = optimizer_tensors(optimizer, parameters);     // "weight.exp_avg", ...
//   restore_optimizer(optimizer, parameters, saved, "optimizer.safetensors");
//
// Throws UsageError "checkpoint.unknown-optimizer", DataError "checkpoint.optimizer-*".
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <optional>
#include <string>

#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// Returns the kind, such as "AdamW" or "SGD". A checkpoint stores it, because it determines what
// the tensors mean. Throws UsageError for any other optimizer.
std::string name_of_optimizer(const torch::optim::Optimizer& optimizer);
// False for an optimizer whose state cannot be saved: the functions here throw UsageError for it.
bool is_known_optimizer(const torch::optim::Optimizer& optimizer);

TensorDict optimizer_tensors(const torch::optim::Optimizer& optimizer,
                             const ParameterNames& parameters);

// Each tensor must belong to a parameter and have its shape and type. LBFGS is an exception,
// because its state covers all parameters together. The states are on the device of their
// parameters unless `state_device` is set.
void restore_optimizer(torch::optim::Optimizer& optimizer, const ParameterNames& parameters,
                       const TensorDict& tensors, const std::filesystem::path& file,
                       std::optional<at::Device> state_device = std::nullopt);

}  // namespace hasten
