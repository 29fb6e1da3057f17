// File: trainer/optimizer_of.h (internal)
// Makes the optimizer that the arguments name, with two groups of parameters: those that decay and
// those that do not. As in the Hugging Face Trainer, the parameters of a LayerNorm do not decay,
// nor do those whose name contains "bias", "layernorm" or "rmsnorm" or has a part that is "norm" or
// ends in "_norm". C++ programs often write their own norms, so a class whose name ends in
// "LayerNorm" or "RMSNorm" is a norm here, too.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "hasten/checkpoint/training_state.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

// `parameters` are those of the module, by name.
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const TrainingArguments& args,
                                                      const torch::nn::Module& module,
                                                      const ParameterNames& parameters);

}  // namespace hasten
