// File: checkpoint/adamw_class.h (internal)
// Recognizes hasten::AdamW. A file of its own, because the fuzzers of checkpoint/optimizer_state.h
// do not link that class and its kernels.
//
//   if (is_hasten_adamw(optimizer)) ...
//
// Thread rule: any thread.
#pragma once

#include <torch/optim/optimizer.h>

namespace hasten {

// True for hasten::AdamW itself, and false for a class that derives from it.
bool is_hasten_adamw(const torch::optim::Optimizer& optimizer);

}  // namespace hasten
