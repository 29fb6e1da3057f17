// File: prepare/byte_tensor.h (internal)
// Tensors of a type that a backend of c10d refuses, as bytes that every backend sends. Gloo and
// NCCL refuse int16, for example, and Gloo refuses complex numbers.
//
//   const at::Tensor bytes = bytes_of(buffer);
//   ...                                          // a collective receives into `bytes`
//   if (!bytes.is_alias_of(buffer)) buffer.copy_(tensor_of_bytes(bytes, buffer));
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace hasten {

// True if every backend sends tensors of this type as they are.
bool is_sendable(at::ScalarType type);

// Returns the bytes of a dense tensor that has elements, in one dimension: a view of its memory if
// it is contiguous there, and otherwise of a copy. The copy is in host memory if the device may
// lack views of another type (a TPU).
at::Tensor bytes_of(const at::Tensor& tensor);

// Returns the bytes as a tensor with the type and the shape of `like`. The two share memory.
at::Tensor tensor_of_bytes(const at::Tensor& bytes, const at::Tensor& like);

}  // namespace hasten
