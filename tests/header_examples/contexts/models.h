// Names that the examples of hasten/models use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_models {

extern at::Tensor x, attention_mask, keys, values, queries;
extern std::int64_t layer, tokens, heads;
extern hasten::TokenDataset dataset;
extern hasten::TensorDict batch;

}  // namespace context_of_models
