// Names that the examples of hasten/prepare use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_prepare {

extern hasten::PreparedModel<example_names::Net> model;
extern hasten::PreparedOptimizer optimizer;
extern std::vector<at::Tensor> own_batches, loader;
extern at::Tensor x, batch;
extern std::int64_t steps;
using Batch = torch::data::Example<>;

}  // namespace context_of_prepare
