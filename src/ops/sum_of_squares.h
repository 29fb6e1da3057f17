// File: ops/sum_of_squares.h (internal)
// The squared 2-norm of many tensors, as the operator `hasten::sum_of_squares`. It is summed in
// double in chunks of fixed size, so that it does not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten::ops {

// Requires float CPU tensors without gaps or overlaps.
double sum_of_squares(at::TensorList tensors);

}  // namespace hasten::ops
