// File: prepare/model_consistency.h (internal)
// Checks that all processes of a group have the same model, and makes weights equal. Collectives.
#pragma once

#include <torch/nn/module.h>

#include "hasten/process/group.h"

namespace hasten {

// Throws UsageError "prepare.models-differ" in every process, naming the first parameter or buffer
// that differs in name, type, shape or requires_grad, and the rank.
void check_same_model(const torch::nn::Module& module, const Group& group);

// Copies parameters and buffers from rank `from`. Sends and writes only tensors that differ, so
// that memory pages that processes share stay shared. Returns the number of tensors sent.
std::int64_t equalize_weights(torch::nn::Module& module, const Group& group, std::int64_t from = 0);

}  // namespace hasten
