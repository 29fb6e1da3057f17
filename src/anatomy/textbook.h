// File: anatomy/textbook.h (internal)
// The memory of a training step according to textbooks, for comparison with the measured memory.
// Thread rule: any thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// Returns the textbook states of LibTorch's and hasten's own optimizers with their current options.
// Returns nullopt for any other optimizer, and for LBFGS, because its history has no fixed size per
// parameter.
std::optional<TextbookStates> textbook_states(const torch::optim::Optimizer& optimizer);

}  // namespace hasten::anatomy
