// The squared 2-norm of many tensors, summed in double in pieces of fixed size, so that it does not
// depend on the number of threads. Operator `hasten::sum_of_squares`.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten::ops {

// Float CPU tensors without gaps or overlaps.
double sum_of_squares(at::TensorList tensors);

}  // namespace hasten::ops
