// File: optim/coalesced.h (internal)
// Sorts and merges the rows of a sparse gradient. Autograd forgets that a stored gradient is
// coalesced, and LibTorch's coalesce() would sort and copy it again. A check takes much less time.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <functional>

namespace hasten {

// True if the rows are known to be distinct and ascending.
inline bool has_ascending_rows(const at::Tensor& gradient) {
  if (!gradient.device().is_cpu() || gradient.sparse_dim() != 1) return false;
  const at::Tensor rows = gradient._indices();
  if (!rows.is_contiguous()) return false;
  const std::int64_t *begin = rows.const_data_ptr<std::int64_t>(), *end = begin + rows.numel();
  return std::adjacent_find(begin, end, std::greater_equal<>()) == end;
}

inline at::Tensor coalesced(at::Tensor gradient) {
  if (gradient.is_coalesced()) return gradient;
  return has_ascending_rows(gradient) ? gradient._coalesced_(true) : gradient.coalesce();
}

}  // namespace hasten
