// File: trainer/optimizer_of.h (internal)
// The optimizer that the arguments name, over a model's parameters in two groups: those that decay,
// and those that do not. The Hugging Face Trainer's rule: no decay for the parameters of a layer
// norm, and for those whose name has "bias", "layernorm", "rmsnorm", or a part "norm" or "..._norm"
// in it. As in C++ norms are often classes of one's own, a class counts that is called so:
// "...LayerNorm" or "...RMSNorm".
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
