// File: trainer/optimizer_of.h (internal)
// The optimizer that the arguments name, over a model's parameters in two groups: those that decay,
// and those that do not. The rule is that of the Hugging Face Trainer: the parameters of a
// LayerNorm do not decay, nor do those whose name has "bias", "layernorm" or "rmsnorm" in it, or a
// part that is "norm" or ends in "_norm". C++ programs often write their own norms, so a class
// whose name ends in "LayerNorm" or "RMSNorm" is a norm here, too.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "hasten/checkpoint/training_state.h"
#include "hasten/config/training_arguments.h"

namespace hasten {

// `parameters` are those of the module, by their names in it.
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const TrainingArguments& args,
                                                      const torch::nn::Module& module,
                                                      const ParameterNames& parameters);

}  // namespace hasten
