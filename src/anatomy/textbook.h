// File: anatomy/textbook.h (internal)
// The memory of a training step according to textbooks, for comparison with the real one. Thread
// rule: any thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// Returns the textbook states of LibTorch's and hasten's own optimizers by their current options;
// nullopt for any other optimizer, and for LBFGS, whose history has no fixed size per parameter.
std::optional<TextbookStates> textbook_states(const torch::optim::Optimizer& optimizer);

}  // namespace hasten::anatomy
