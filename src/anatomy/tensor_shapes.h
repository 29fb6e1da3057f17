// File: anatomy/tensor_shapes.h (internal)
// Describes tensors for the recorder: their shapes, bytes and storages.
//
//   for_each_tensor(value, [&](const at::Tensor& tensor) { read += shape_of(tensor).bytes; });
//
// Tensors may be undefined. Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>

#include "anatomy/dry_tensor.h"
#include "anatomy/op_rules.h"

namespace hasten::anatomy {

inline const void* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

// True if the tensor is neither sparse nor nested, so that its sizes describe the work.
inline bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() || (!tensor.is_nested() &&
                               (tensor.layout() == at::kStrided || tensor.layout() == at::kMkldnn));
}

// The bytes in memory. An expanded dimension counts once, and overlapping windows count at most the
// bytes of their storage.
inline std::int64_t memory_bytes(const at::Tensor& tensor) {
  std::int64_t bytes = static_cast<std::int64_t>(tensor.element_size());
  const bool strided = tensor.layout() == at::kStrided;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    bytes *= strided && tensor.stride(i) == 0 ? std::min<std::int64_t>(1, tensor.size(i))
                                              : tensor.size(i);
  return strided && tensor.has_storage()
             ? std::min(bytes, static_cast<std::int64_t>(tensor.storage().nbytes()))
             : bytes;
}

inline TensorShape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.is_sparse()) {
    const TensorShape values = shape_of(tensor._values()), indices = shape_of(tensor._indices());
    return {.sizes = tensor.sizes().vec(),
            .numel = values.numel,
            .bytes = values.bytes + indices.bytes,
            .type = values.type};
  }
  if (!is_plain(tensor)) return {.type = tensor.scalar_type()};
  return {.sizes = tensor.sizes().vec(),
          .numel = tensor.numel(),
          .bytes = memory_bytes(tensor),
          .type = tensor.scalar_type()};
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) visit(each);
  } else if (value.isOptionalTensorList()) {
    for (const auto& each : value.toOptionalTensorVector()) visit(each.value_or(at::Tensor()));
  }
}

// Visits the storages of a tensor with their bytes; a sparse tensor has two.
template <class Visit>
void for_each_storage(const at::Tensor& tensor, Visit visit) {
  if (!tensor.defined()) return;
  if (tensor.is_sparse()) {
    for_each_storage(tensor._indices(), visit);
    for_each_storage(tensor._values(), visit);
  } else if (const void* storage = storage_of(tensor)) {
    visit(storage, allocated_bytes(tensor));
  }
}

}  // namespace hasten::anatomy
