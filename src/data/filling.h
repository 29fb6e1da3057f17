// File: data/filling.h (internal)
// What stands where a batch has nothing, so that its tensors are of one size.
//
//   labels = filled(labels, 1, 128, kIgnoredLabel);
//
// Throws what LibTorch does. Thread rule: any thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace hasten {

// A label that counts nothing, in losses and in metrics.
inline constexpr std::int64_t kIgnoredLabel = -100;

// The tensor with `value` behind it along the dimension, up to `size`.
inline at::Tensor filled(const at::Tensor& tensor, std::int64_t dim, std::int64_t size,
                         std::int64_t value) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = size - tensor.size(dim);
  return at::cat({tensor, at::full(sizes, value, tensor.options())}, dim);
}

}  // namespace hasten
