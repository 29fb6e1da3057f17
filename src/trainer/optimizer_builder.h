// File: trainer/optimizer_builder.h (internal)
// Makes the optimizer that the arguments name, with two groups of parameters: one with weight decay
// and one without it (hasten/models/training_traits.h). Options that neither the arguments nor
// optim_args set have the defaults of the Hugging Face Trainer.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

// Returns the parameters of a module by name. A tensor that is registered twice has its first name.
ParameterNames parameters_of(const torch::nn::Module& module);

// `parameters` are the parameters of the module, by name. A share of warm-up steps is a share of
// `num_training_steps`.
std::unique_ptr<torch::optim::Optimizer> build_optimizer(const TrainingArguments& args,
                                                         const torch::nn::Module& module,
                                                         const ParameterNames& parameters,
                                                         std::int64_t num_training_steps = 0);

}  // namespace hasten
