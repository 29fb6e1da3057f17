// Names that the examples of hasten/ops use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_ops {

extern at::Tensor x, weight, bias, w2, b2, weights, shift;

}  // namespace context_of_ops
