// File: anatomy/textbook.h (internal)
// What textbooks say of a training step's memory, beside what it is. Thread rule: any thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <optional>

#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// Of LibTorch's optimizers and hasten's own, by their options now; nothing of others. LBFGS keeps a
// history, for which there is no figure a parameter.
std::optional<TextbookStates> textbook_states(const torch::optim::Optimizer& optimizer);

}  // namespace hasten::anatomy
