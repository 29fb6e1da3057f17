// File: checkpoint/sparse_parts.h (internal)
// Stores a sparse tensor as three dense ones, because a safetensors file has dense tensors only.
//
//   add_sparse_parts(tensors, "table", gradient);    // "table:indices", "table:values" and so on
//   if (has_sparse_parts(tensors, "table")) gradient = sparse_from_parts(tensors, "table", {9, 3});
//
// The parts share the memory of the sparse tensor. Thread rule: pure functions, on different
// dictionaries.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

inline constexpr const char *kIndicesPart = ":indices", *kValuesPart = ":values",
                            *kIsCoalescedPart = ":is_coalesced";

inline void add_sparse_parts(TensorDict& tensors, const std::string& name,
                             const at::Tensor& sparse) {
  tensors[name + kIndicesPart] = sparse._indices();
  tensors[name + kValuesPart] = sparse._values();
  tensors[name + kIsCoalescedPart] = at::scalar_tensor(sparse.is_coalesced(), at::kBool);
}

inline bool has_sparse_parts(const TensorDict& tensors, const std::string& name) {
  return tensors.contains(name + kIndicesPart);
}

// Throws DataError "data.missing-tensor" if a part is missing, and c10::Error if the parts are no
// tensor of these sizes.
inline at::Tensor sparse_from_parts(const TensorDict& tensors, const std::string& name,
                                    at::IntArrayRef sizes) {
  const at::Tensor &indices = tensor_at(tensors, name + kIndicesPart),
                   &values = tensor_at(tensors, name + kValuesPart),
                   &is_coalesced = tensor_at(tensors, name + kIsCoalescedPart);
  // LibTorch does not check the indices itself, and would read and write outside of the tensor.
  at::_validate_sparse_coo_tensor_args(indices, values, sizes);
  const at::Tensor sparse =
      at::sparse_coo_tensor(indices, values, sizes, values.options().layout(at::kSparse));
  return sparse._coalesced_(is_coalesced.item<bool>());
}

}  // namespace hasten
