// Names that the examples of hasten/checkpoint use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_checkpoint {

extern hasten::ParameterNames names;
extern hasten::Loader<hasten::TensorDict> loader;

}  // namespace context_of_checkpoint
