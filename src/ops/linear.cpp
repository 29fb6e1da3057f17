#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "hasten/ops/ops.h"
#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// MKL, LibTorch's usual BLAS, uses AVX-512 on Intel's CPUs only; oneDNN inside LibTorch uses it
// wherever it is there (measured on a Zen 5 core: 98 against 226 GFLOP/s). On other machines BLAS
// stays, as LibTorch has it.
bool choose_onednn() {
#ifdef __x86_64__
  if (!at::globalContext().userEnabledMkldnn() || !at::hasMKL()) return false;
  return __builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel") &&
         c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
#else
  return false;
#endif
}

bool onednn() {
  static const bool chosen = choose_onednn();
  return chosen;
}

// x weight^T + bias through oneDNN, for any strides a transposed view can have.
Tensor onednn_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  using Signature =
      Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, std::string_view,
             c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                             .typed<Signature>();
  return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

// oneDNN looks its kernel up anew each call, some 10 microseconds: below this many multiplications
// BLAS is done sooner.
constexpr std::int64_t kSmallProduct = 3'000'000;

bool use_onednn(const Tensor& x, std::int64_t rows, std::int64_t in, std::int64_t out) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && onednn() &&
         rows * in * out >= kSmallProduct;
}

// a [m, k] times b^T, b [n, k].
Tensor product(const Tensor& a, const Tensor& b, const std::optional<Tensor>& bias = std::nullopt) {
  if (use_onednn(a, a.size(0), a.size(1), b.size(0))) return onednn_linear(a, b, bias);
  return bias ? at::addmm(*bias, a, b.t()) : at::mm(a, b.t());
}

void column_sum_cpu(const Tensor& x, const Tensor& sums) {
  with_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_parts(x, sums, [&](std::int64_t first, std::int64_t last, std::int64_t at, float* out) {
      kernel.column_sum(rows_of<T>(x) + at, out, last - first, x.size(-1));
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library, "column_sum(Tensor x, Tensor(a!) sums) -> ()", column_sum_cpu);
}

// x [rows, columns] contiguous -> [columns]
Tensor column_sum(const Tensor& x) {
  const Tensor sums = partial_sums(x, x.size(1));
  call<column_sum_cpu>("hasten::column_sum", x, sums);
  return total(sums);
}

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, at::ScalarType type) {
    // A view that shares x's version, so that a later in-place change of x is noticed.
    const Tensor rows = x.reshape({-1, x.size(-1)}).to(type);
    const Tensor factor = weight.to(type);
    context->save_for_backward({rows, factor});
    context->saved_data["shape"] = x.sizes();
    context->saved_data["x_type"] = x.scalar_type();
    context->saved_data["has_bias"] = bias.has_value();
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = weight.size(0);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return product(rows, factor, bias ? std::make_optional(bias->to(type)) : std::nullopt)
        .view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = context->get_saved_variables();
    const Tensor &rows = saved[0], &factor = saved[1];
    const Tensor dy = grads[0].reshape({-1, grads[0].size(-1)}).to(rows.scalar_type()).contiguous();
    Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) {
      dx = product(dy, factor.t())
               .view(context->saved_data["shape"].toIntVector())
               .to(context->saved_data["x_type"].toScalarType());
    }
    if (context->needs_input_grad(1)) dweight = product(dy.t(), rows.t()).to(at::kFloat);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      dbias = column_sum(dy);
    return {dx, dweight, dbias, Tensor()};
  }
};

}  // namespace

std::string matrix_product_engine() { return onednn() ? "oneDNN" : "BLAS"; }

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool lower = at::autocast::is_autocast_enabled(x.device().type());
  if (!x.device().is_cpu() || weight.scalar_type() != at::kFloat) {
    return at::linear(x, weight, defined(bias));
  }
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 2 && x.size(-1) == weight.size(1), "linear: got x ",
              x.sizes(), " and weight ", weight.sizes(), ", expected x [..., ", weight.size(-1),
              "]");
  return Linear::apply(x, weight, defined(bias),
                       lower ? at::autocast::get_autocast_dtype(at::kCPU) : at::kFloat);
}

}  // namespace hasten::ops
