// File: formats/plain_tensor.h (internal)
// The values of a tensor as the bytes of a file or a message.
//
//   const at::Tensor plain = plain_tensor(tensor);
//   out.write(plain.const_data_ptr(), plain.nbytes());
//
// Thread rule: pure function.
#pragma once

#include <ATen/ATen.h>

namespace hasten {

// Returns the values as a contiguous tensor on the CPU without gradient. The result shares the
// memory of a tensor that already has this form.
inline at::Tensor plain_tensor(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
}

}  // namespace hasten
