// Names that the examples of hasten/checkpoint use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace names_of_checkpoint {

extern hasten::ParameterNames names;
extern hasten::Loader<hasten::TensorDict> loader;

}  // namespace names_of_checkpoint
