// Names that the examples of hasten/launch use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_launch {

extern hasten::LaunchConfiguration run;

}  // namespace context_of_launch
