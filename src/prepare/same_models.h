// File: prepare/same_models.h (internal)
// Whether the processes of a group have the same model, and weights made the same. Collectives.
#pragma once

#include <torch/nn/module.h>

#include "hasten/process/group.h"

namespace hasten {

// Throws UsageError "prepare.models-differ" in every process, with the first parameter or buffer
// that differs in name, type or shape, and whose it is.
void check_same_model(const torch::nn::Module& module, const Group& group);

// Parameters and buffers as rank `from` has them. Only what differs is sent and written; pages that
// processes share stay shared. Gives the number of tensors that were sent.
std::int64_t equalize_weights(torch::nn::Module& module, const Group& group, std::int64_t from = 0);

}  // namespace hasten
