// File: trainer/optimizer_of.h (internal)
// The optimizer that the arguments name, over a model's parameters in two groups: biases and the
// norms' parameters are not decayed, as the peer has it.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

#include "hasten/checkpoint/training_state.h"
#include "hasten/config/training_arguments.h"

namespace hasten {

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const TrainingArguments& args,
                                                      const ParameterNames& parameters);

}  // namespace hasten
