#include <ATen/core/dispatch/Dispatcher.h>

#include "hasten/ops/ops.h"
#include "ops/adapted_weight.h"
#include "ops/cpu.h"
#include "ops/gpu_linear.h"
#include "ops/product.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// MKL, LibTorch's usual BLAS, uses AVX-512 only on Intel's CPUs. LibTorch's oneDNN uses it on every
// CPU that has it (measured on a Zen 5 core: 98 GFLOP/s with MKL, 226 with oneDNN). All other CPUs
// use BLAS, as LibTorch does.
bool choose_onednn() {
#ifdef __x86_64__
  if (!at::globalContext().userEnabledMkldnn() || !at::hasMKL()) return false;
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel") &&
         c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
#else
  return false;
#endif
}

bool prefers_onednn() {
  static const bool chosen = choose_onednn();
  return chosen;
}

// Computes x weight^T + bias with oneDNN, for any strides of a transposed view.
Tensor onednn_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  using Signature =
      Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::string_view,
             c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                             .typed<Signature>();
  return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

// oneDNN looks up its kernel on each call, which takes about 10 microseconds. Below this many
// multiplications BLAS is faster.
constexpr std::int64_t kSmallProduct = 3'000'000;

// Returns whether a stride is 0, as in an expanded tensor. oneDNN cannot describe such strides.
bool is_expanded(const Tensor& x) { return x.stride(0) == 0 || x.stride(1) == 0; }

bool use_onednn(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == at::kFloat && a.device().is_cpu() && prefers_onednn() &&
         a.size(0) * a.size(1) * b.size(0) >= kSmallProduct && !is_expanded(b);
}

// Copies a matrix with gaps between rows or columns, such as one token of each row of a batch. For
// such matrices oneDNN has only a reference implementation, which is a hundred times slower.
Tensor without_gaps(const Tensor& x) {
  const bool is_dense = (x.stride(1) == 1 && x.stride(0) == x.size(1)) ||
                        (x.stride(0) == 1 && x.stride(1) == x.size(0));
  return is_dense ? x : x.contiguous();
}

void column_sum_cpu(const Tensor& x, const Tensor& sums) {
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_parts(x, sums, [&](std::int64_t first, std::int64_t last, std::int64_t at, float* out) {
      kernel.column_sum(rows_of<T>(x) + at, out, last - first, x.size(-1));
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library, "column_sum(Tensor x, Tensor(a!) sums) -> ()", column_sum_cpu);
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b, const std::optional<Tensor>& bias) {
  if (use_onednn(a, b)) return onednn_linear(without_gaps(a), without_gaps(b), bias);
  return bias ? at::addmm(*bias, a, b.t()) : at::mm(a, b.t());
}

Tensor column_sum(const Tensor& x) {
  const Tensor sums = partial_sums(x, x.size(1), {.min_rows = 64, .max_parts = 256});
  call_operator<column_sum_cpu>("hasten::column_sum", x, sums);
  return total(sums);
}

namespace {

// x, weight and the product have the same type; the bias is float. The weight is [out, in], or [in,
// out] if it is transposed. Its gradient has the same shape.
struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool transposed) {
    const NoAutocastGuard without_autocast;
    // A frozen weight does not need x, which is most of the memory that a product keeps.
    context->save_for_backward(
        {weight.requires_grad() ? x : Tensor(), x.requires_grad() ? weight : Tensor()});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["transposed"] = transposed;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor matrix = transposed ? weight.t() : weight;
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = matrix.size(0);
    return product(as_rows(x), matrix,
                   bias ? std::make_optional(bias->to(x.scalar_type())) : std::nullopt)
        .view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const bool transposed = context->saved_data["transposed"].toBool();
    const Tensor &x = saved[0], &weight = saved[1];
    const bool needs_dx = context->needs_input_grad(0),
               needs_dweight = context->needs_input_grad(1),
               needs_dbias =
                   context->saved_data["has_bias"].toBool() && context->needs_input_grad(2);
    std::vector<std::int64_t> shape_of_x = grads[0].sizes().vec();
    if (needs_dx) shape_of_x.back() = weight.size(transposed ? 0 : 1);
    Tensor dx, dweight, dbias;
    if (needs_second_derivative()) {
      const Tensor dy = as_rows(grads[0]);
      if (needs_dx) dx = at::mm(dy, transposed ? weight.t() : weight).reshape(shape_of_x);
      if (needs_dweight) {
        const Tensor rows = as_rows(x);
        dweight = transposed ? at::mm(rows.t(), dy) : at::mm(dy.t(), rows);
      }
      if (needs_dbias) dbias = dy.sum(0, /*keepdim=*/false, at::kFloat);
      return {dx, dweight, dbias, Tensor()};
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor dy = as_rows(grads[0]).contiguous();
    if (needs_dx) dx = product(dy, transposed ? weight : weight.t()).view(shape_of_x);
    if (needs_dweight) {
      const Tensor rows = as_rows(x);
      dweight = transposed ? product(rows.t(), dy.t()) : product(dy.t(), rows.t());
    }
    if (needs_dbias) dbias = column_sum(dy);
    return {dx, dweight, dbias, Tensor()};
  }
};

// Computes x weight^T + bias, or x weight + bias for a transposed weight.
Tensor weight_product(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed) {
  if (fits_gpu_linear(x, weight, bias, transposed)) return gpu_linear(x, weight, bias, transposed);
  const auto libtorch = [&] {
    return at::linear(x, transposed ? weight.t() : weight, optional_if_defined(bias));
  };
  const std::int64_t in = transposed ? 0 : 1, out = 1 - in;
  const bool fits =
      is_kernel_input(x) && is_kernel_parameter(weight) && x.dim() >= 1 && weight.dim() == 2 &&
      (!bias.defined() ||
       (is_kernel_parameter(bias) && bias.dim() == 1 && bias.size(0) == weight.size(out)));
  if (!fits) return libtorch();
  TORCH_CHECK(x.size(-1) == weight.size(in), "linear: got x ", x.sizes(), " and weight ",
              weight.sizes(), ", expected x [..., ", weight.size(in), "]");
  const at::ScalarType type = product_type(weight);
  if (!has_kernels(type)) return libtorch();
  return Linear::apply(x.to(type), weight.to(type), optional_if_defined(bias), transposed);
}

// Adds the product of an adapter if the weight has one.
Tensor adapted_product(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed) {
  const auto adapter = adapter_of(weight, transposed ? WeightLayout::in_out : WeightLayout::out_in);
  if (!adapter) return weight_product(x, weight, bias, transposed);
  const NoAdaptersGuard weights_alone;
  return adapter->apply(x, weight_product(x, weight, bias, transposed));
}

}  // namespace

std::string matrix_product_engine() { return prefers_onednn() ? "oneDNN" : "BLAS"; }

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return adapted_product(x, weight, bias, /*transposed=*/false);
}

Tensor linear_transposed(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return adapted_product(x, weight, bias, /*transposed=*/true);
}

}  // namespace hasten::ops
