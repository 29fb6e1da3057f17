// Names that the examples of hasten/device use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_device {

extern std::shared_ptr<example_names::Net> model;
extern std::int64_t step;

}  // namespace context_of_device
