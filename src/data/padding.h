// File: data/padding.h (internal)
// Fills tensors of a batch up to a common size.
//
//   labels = pad_dim(labels, 1, 128, kIgnoredLabel);
//
// Throws what LibTorch throws. Thread rule: any thread.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace hasten {

// The label that losses and metrics ignore.
inline constexpr std::int64_t kIgnoredLabel = -100;

// Returns `tensor` with `value` appended along dimension `dim`, up to `size` entries.
inline at::Tensor pad_dim(const at::Tensor& tensor, std::int64_t dim, std::int64_t size,
                          std::int64_t value) {
  std::vector<std::int64_t> sizes = tensor.sizes().vec();
  sizes[static_cast<std::size_t>(dim)] = size - tensor.size(dim);
  return at::cat({tensor, at::full(sizes, value, tensor.options())}, dim);
}

}  // namespace hasten
