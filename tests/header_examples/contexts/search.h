// Names that the examples of hasten/search use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_search {

double train_epoch(double learning_rate, std::int64_t batch);
extern hasten::Trial trial;

}  // namespace context_of_search
