// File: ops/cpu.h (internal)
// Helpers for the operators: which kernels can process a tensor, typed access to contiguous rows on
// the CPU, and splitting rows among LibTorch's threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "device/device.h"
#include "ops/kernels/kernels.h"
#include "ops/operator.h"

namespace hasten::ops {

inline bool has_kernels(at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; }

// Returns whether the CPU kernels can process x. If not, an operator uses LibTorch's operators,
// which also decide which combinations of types and devices are errors.
inline bool is_kernel_input(const at::Tensor& x) {
  return x.device().is_cpu() && x.layout() == at::kStrided && has_kernels(x.scalar_type());
}

// Returns the same for a parameter, which must be float.
inline bool is_kernel_parameter(const at::Tensor& x) {
  return is_kernel_input(x) && x.scalar_type() == at::kFloat;
}

// The kernels of a device other than the CPU hold rows of at most this width in registers.
inline constexpr std::int64_t kMaxDeviceColumns = 16384;

// Returns whether x is on a device other than the CPU that has kernels of hasten's own for this
// type.
inline bool has_device_kernels(const at::Tensor& x, at::ScalarType type) {
  return !x.device().is_cpu() && device_of(x.device()).has_kernels(type);
}

// Returns whether the CPU or the other device of x has kernels of hasten's own for rows of this
// type that are stored like the rows of x.
inline bool has_row_kernels(const at::Tensor& x, at::ScalarType type) {
  return x.layout() == at::kStrided &&
         (x.device().is_cpu() ? has_kernels(type) : has_device_kernels(x, type));
}

// Returns whether the row kernels of the CPU or of another device can process x with these
// parameters, which must be float and on the same device.
inline bool fits_row_kernels(const at::Tensor& x, std::initializer_list<at::Tensor> parameters) {
  const bool fits = has_row_kernels(x, x.scalar_type()) &&
                    (x.device().is_cpu() || (x.dim() > 0 && x.size(-1) <= kMaxDeviceColumns));
  return fits && std::all_of(parameters.begin(), parameters.end(), [&](const at::Tensor& each) {
           return each.device() == x.device() && each.layout() == at::kStrided &&
                  each.scalar_type() == at::kFloat;
         });
}

inline bool is_autocast_enabled(at::DeviceType device) {
  return at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device);
}

// Returns the type in which autocast computes a product of x on its device.
inline at::ScalarType product_type(const at::Tensor& x) {
  const at::DeviceType device = x.device().type();
  const bool casts =
      is_autocast_enabled(device) && x.is_floating_point() && x.scalar_type() != at::kDouble;
  return casts ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

// Returns the bias for a product x. If autocast has computed x, the bias is cast to the type of x,
// as autocast does in aten::linear. A sum in float would take twice the memory of x.
inline at::Tensor bias_of_product(const at::Tensor& x, const at::Tensor& bias) {
  const bool casts =
      at::isReducedFloatingType(x.scalar_type()) && is_autocast_enabled(x.device().type());
  return casts ? bias.to(x.scalar_type()) : bias;
}

// Disables autocast. The kernels rely on an autograd function computing in the types of its inputs,
// even if autocast is on during the backward pass.
class NoAutocastGuard {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

// Returns whether the gradients of this backward pass must be differentiable themselves
// (create_graph). Gradients from the kernels are not, so such a pass uses LibTorch's operators.
inline bool needs_second_derivative() { return at::GradMode::is_enabled(); }

// Autograd functions take a missing tensor as an empty optional, not as an undefined tensor.
inline std::optional<at::Tensor> optional_if_defined(const at::Tensor& x) {
  return x.defined() ? std::make_optional(x) : std::nullopt;
}

// Calls body(kernels for the tensor's type, a null pointer of that type).
template <class Body>
auto dispatch_type(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kBFloat16) return body(kernels().b16, static_cast<bf16*>(nullptr));
  TORCH_CHECK(x.scalar_type() == at::kFloat, "hasten's CPU kernels: got ", x.scalar_type(),
              ", expected Float or BFloat16");
  return body(kernels().f32, static_cast<float*>(nullptr));
}

// Checks the type, because a kernel that reads 16-bit numbers as float would read past the end.
template <class T>
T* rows_of(const at::Tensor& x) {
  constexpr at::ScalarType expected = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
  TORCH_CHECK(x.scalar_type() == expected, "hasten's CPU kernels: got ", x.scalar_type(),
              " mixed with tensors of ", expected);
  return static_cast<T*>(x.data_ptr());
}

// Returns x [..., columns] as [rows, columns], even without elements.
inline at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({c10::size_to_dim_(static_cast<int>(x.dim()) - 1, x.sizes()), x.size(-1)});
}

// Returns the number of rows of x [..., columns].
inline std::int64_t row_count(const at::Tensor& x) {
  return x.numel() / std::max<std::int64_t>(x.size(-1), 1);
}

// Returns the number of rows that justifies a thread: about 16 Ki elements.
inline std::int64_t min_rows_per_thread(std::int64_t columns) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(columns, 1));
}

// Calls body(first, last, offset of row `first`) for ranges of the rows of x in LibTorch's threads.
template <class Body>
void for_rows(const at::Tensor& x, Body body) {
  const std::int64_t columns = x.size(-1);
  at::parallel_for(
      0, row_count(x), min_rows_per_thread(columns),
      [&](std::int64_t first, std::int64_t last) { body(first, last, first * columns); });
}

// Limits the parts into which a device other than the CPU divides rows for their sum: at least
// `min_rows` rows for each part and at most `max_parts` parts. There are enough parts to occupy the
// device, and few enough that their sums take little memory and time.
struct PartLimits {
  std::int64_t min_rows, max_parts;
};

// Sums over rows are computed in parts. The CPU uses at most one part for each thread. Returns
// memory for the sums [parts, sums], which is zeros on the CPU. The kernel fills it, and total()
// adds up the parts. The split depends only on the shape and the number of threads, so results are
// reproducible for that number.
inline at::Tensor partial_sums(const at::Tensor& x, std::int64_t sums,
                               PartLimits of_device = {.min_rows = 32, .max_parts = 1024}) {
  const bool on_cpu = x.device().is_cpu();
  const std::int64_t rows = on_cpu ? min_rows_per_thread(x.size(-1)) : of_device.min_rows,
                     max_parts = on_cpu ? at::get_num_threads() : of_device.max_parts,
                     parts =
                         std::clamp<std::int64_t>((row_count(x) + rows - 1) / rows, 1, max_parts);
  const at::TensorOptions options = x.options().dtype(at::kFloat);
  return on_cpu ? at::zeros({parts, sums}, options) : at::empty({parts, sums}, options);
}

inline at::Tensor total(const at::Tensor& partial) {
  return partial.size(0) == 1 ? partial.select(0, 0) : partial.sum(0);
}

// Calls body(first, last, offset of row `first`, float* sums of this part).
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
