// What the operators' CPU paths share: typed access to contiguous rows and splitting rows among
// LibTorch's threads.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>

#include "ops/kernels/kernels.h"
#include "ops/operator.h"

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

// body(first, last, offset of row `first`) for ranges of the rows of x, shared out among the
// threads.
template <class Body>
void for_rows(const at::Tensor& x, Body body) {
  const std::int64_t columns = x.size(-1);
  at::parallel_for(0, row_count(x), row_grain(columns), [&](std::int64_t first, std::int64_t last) {
    body(first, last, first * columns);
  });
}

// Sums over rows are formed in parts, one a thread at most: zeros [parts, sums] for the parts of
// rows [rows, columns], filled by for_parts and added up by total. The split depends on the number
// of threads alone, so a result is the same each time for that number.
inline at::Tensor partial_sums(const at::Tensor& x, std::int64_t sums) {
  const std::int64_t grain = row_grain(x.size(-1));
  return at::zeros(
      {std::clamp<std::int64_t>((row_count(x) + grain - 1) / grain, 1, at::get_num_threads()),
       sums},
      at::kFloat);
}

inline at::Tensor total(const at::Tensor& partial) {
  return partial.size(0) == 1 ? partial.select(0, 0) : partial.sum(0);
}

// body(first, last, offset of row `first`, float* sums of this part)
template <class Body>
void for_parts(const at::Tensor& x, const at::Tensor& partial, Body body) {
  const std::int64_t rows = row_count(x), columns = x.size(-1), parts = partial.size(0);
  float* sums = partial.mutable_data_ptr<float>();
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = rows * part / parts;
      body(first, rows * (part + 1) / parts, first * columns, sums + part * partial.size(1));
    }
  });
}

}  // namespace hasten::ops
