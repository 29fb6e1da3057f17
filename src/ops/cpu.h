// What the operators' CPU paths share: typed access to contiguous rows and splitting rows among
// LibTorch's threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <type_traits>

#include "ops/kernels/kernels.h"
#include "ops/operator.h"

namespace hasten::ops {

inline bool has_kernels(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; }

// Whether the CPU kernels can read and write x. Where they cannot, an operator computes the same
// with LibTorch's operators, which also decide which combinations of types and devices are errors.
inline bool is_fused(const at::Tensor& x) {
  return x.device().is_cpu() && x.layout() == at::kStrided && has_kernels(x.scalar_type());
}

// The same for a parameter, which the kernels take in float only.
inline bool is_fused_parameter(const at::Tensor& x) {
  return is_fused(x) && x.scalar_type() == at::kFloat;
}

// The type in which autocast computes a product of the CPU tensor x.
inline at::ScalarType product_type(const at::Tensor& x) {
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU) && x.is_floating_point() &&
                     x.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(at::kCPU) : x.scalar_type();
}

// An autograd function computes in the types of the tensors it was given, in the backward pass also
// where the caller has autocast on by then: the kernels rely on it.
class WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

// Whether the gradients that a backward pass computes now have to be differentiable themselves
// (create_graph). The kernels' results are not, so the pass uses LibTorch's operators instead.
inline bool needs_second_derivative() { return at::GradMode::is_enabled(); }

// An autograd function takes a tensor that may be missing as an optional, not as an undefined one.
inline std::optional<at::Tensor> defined(const at::Tensor& x) {
  return x.defined() ? std::make_optional(x) : std::nullopt;
}

// body(kernels for the tensor's type, a null pointer of that type)
template <class Body>
auto with_type(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kBFloat16) return body(kernels().b16, static_cast<bf16*>(nullptr));
  TORCH_CHECK(x.scalar_type() == at::kFloat, "hasten's CPU kernels: got ", x.scalar_type(),
              ", expected Float or BFloat16");
  return body(kernels().f32, static_cast<float*>(nullptr));
}

// Checks the type, because a kernel that reads a tensor of 16 bits as float reads behind its end.
template <class T>
T* rows_of(const at::Tensor& x) {
  constexpr at::ScalarType expected = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
  TORCH_CHECK(x.scalar_type() == expected, "hasten's CPU kernels: got ", x.scalar_type(),
              " beside tensors of ", expected);
  return static_cast<T*>(x.data_ptr());
}

// x [..., columns] as [rows, columns], also where x has no elements.
inline at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({c10::size_to_dim_(static_cast<int>(x.dim()) - 1, x.sizes()), x.size(-1)});
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
