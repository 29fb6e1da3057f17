// Names that the examples of hasten/options use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_options {

extern std::string text;
extern std::int64_t total_steps;
extern std::vector<hasten::config::ResolvedValue> values;

}  // namespace context_of_options
