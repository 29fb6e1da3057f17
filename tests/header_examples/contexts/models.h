// Names that the examples of hasten/models use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace names_of_models {

extern at::Tensor x;

}  // namespace names_of_models
