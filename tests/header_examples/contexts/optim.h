// Names that the examples of hasten/optim use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_optim {

extern std::shared_ptr<example_names::Net> model;
extern double evaluation_loss;
extern std::vector<at::Tensor> matrices, others;

}  // namespace context_of_optim
