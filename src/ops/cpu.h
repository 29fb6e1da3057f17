// What the operators' CPU paths share: typed access to contiguous rows and splitting rows among
// LibTorch's threads.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>

#include "ops/kernels/kernels.h"

namespace hasten::ops {

inline bool is_fused(const at::Tensor& x) {
  return x.device().is_cpu() && x.layout() == at::kStrided &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// An autograd function takes a tensor that may be missing as an optional, not as an undefined one.
inline std::optional<at::Tensor> defined(const at::Tensor& x) {
  return x.defined() ? std::make_optional(x) : std::nullopt;
}

// body(kernels for the tensor's type, a null pointer of that type)
template <class Body>
auto with_type(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kBFloat16) return body(kernels().b16, static_cast<bf16*>(nullptr));
  return body(kernels().f32, static_cast<float*>(nullptr));
}

template <class T>
T* rows_of(const at::Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

// x [..., columns] seen as rows.
inline std::int64_t row_count(const at::Tensor& x) {
  return x.numel() / std::max<std::int64_t>(x.size(-1), 1);
}

// Rows worth a thread of their own: about 16 Ki elements.
inline std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(columns, 1));
}

// Splits [0, rows) among the threads and adds up one vector of partial sums a thread: body(first,
// last, float* sums). The split depends on the number of threads alone, so a result is the same
// each time for that number.
template <class Body>
at::Tensor summed_rows(std::int64_t rows, std::int64_t columns, std::int64_t sums, Body body) {
  const std::int64_t parts = std::clamp<std::int64_t>(
      (rows + row_grain(columns) - 1) / row_grain(columns), 1, at::get_num_threads());
  at::Tensor partial = at::zeros({parts, sums}, at::kFloat);
  float* out = partial.mutable_data_ptr<float>();
  at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part)
      body(rows * part / parts, rows * (part + 1) / parts, out + part * sums);
  });
  return parts == 1 ? partial.select(0, 0) : partial.sum(0);
}

}  // namespace hasten::ops
