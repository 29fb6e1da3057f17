// Names that the examples of hasten/base use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_base {

extern hasten::Trainer trainer;
extern std::vector<std::string> names;
extern std::string text;

}  // namespace context_of_base
