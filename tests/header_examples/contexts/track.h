// Names that the examples of hasten/track use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_track {

extern std::int64_t num_training_steps, step;

}  // namespace context_of_track
