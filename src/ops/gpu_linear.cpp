#include "ops/gpu_linear.h"

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "ops/cpu.h"
#include "ops/float_product.h"
#include "ops/product.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The weight and the bias in the type of the product. Autograd does not see them.
struct CastParameters {
  Tensor weight;
  std::optional<Tensor> bias;
};

// Returns x [..., columns] as [rows, columns]; view() is one operator, reshape() two.
Tensor matrix_of(const Tensor& x) {
  if (x.dim() == 2) return x;
  if (!x.is_contiguous()) return as_rows(x);
  return x.view({c10::size_to_dim_(static_cast<int>(x.dim()) - 1, x.sizes()), x.size(-1)});
}

// Returns the matrix y [rows, columns] as [..., columns] for the dimensions of `like` before its
// last.
Tensor shaped_as(const Tensor& like, const Tensor& y) {
  if (like.dim() == 2) return y;
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

Tensor transpose_of(const Tensor& x) { return x.transpose(0, 1); }

// Returns a b in the type of a parameter.
Tensor parameter_gradient(const Tensor& a, const Tensor& b, at::ScalarType type) {
  if (a.scalar_type() == type) return at::mm(a, b);
  return type == at::kFloat ? float_product(a, b) : at::mm(a, b).to(type);
}

// For fewer numbers, LibTorch's sum takes little more time than the launch of its kernel, and it
// launches one kernel instead of two.
constexpr std::int64_t kMinKernelSumElements = 4 << 20;

// Returns the sum over the rows of dy in the type of the bias.
Tensor sum_for_bias(const Tensor& dy, at::ScalarType type) {
  const bool fits = type == at::kFloat && dy.numel() >= kMinKernelSumElements &&
                    dy.is_contiguous() && has_device_kernels(dy, dy.scalar_type());
  return fits ? column_sum(dy) : dy.sum(0, /*keepdim=*/false, type);
}

struct GpuLinear : torch::autograd::Function<GpuLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const CastParameters& cast,
                        bool transposed) {
    const NoAutocastGuard without_autocast;
    // A frozen weight needs no x, and x takes most of the memory that a product keeps.
    context->save_for_backward(
        {weight.requires_grad() ? x : Tensor(), x.requires_grad() ? cast.weight : Tensor()});
    auto& data = context->saved_data;
    data["transposed"] = transposed;
    data["weight_type"] = weight.scalar_type();
    if (bias) data["bias_type"] = bias->scalar_type();
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor rows = matrix_of(x), factor = transposed ? cast.weight : transpose_of(cast.weight);
    return shaped_as(x, cast.bias ? at::addmm(*cast.bias, rows, factor) : at::mm(rows, factor));
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &of_result = grads[0];
    auto& data = context->saved_data;
    const bool transposed = data["transposed"].toBool(), has_bias = data.count("bias_type") != 0;
    variable_list gradients(5);
    // Recorded operators need derivatives, and float_product() has none.
    const bool records = needs_second_derivative();
    std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
    if (!records) below_autograd.emplace();
    const Tensor dy = matrix_of(of_result);
    if (context->needs_input_grad(0))
      gradients[0] = shaped_as(of_result, at::mm(dy, transposed ? transpose_of(weight) : weight));
    if (context->needs_input_grad(1)) {
      const at::ScalarType type = data["weight_type"].toScalarType();
      const Tensor rows = matrix_of(x), first = transpose_of(transposed ? rows : dy),
                   &second = transposed ? dy : rows;
      gradients[1] =
          records ? at::mm(first, second).to(type) : parameter_gradient(first, second, type);
    }
    if (has_bias && context->needs_input_grad(2)) {
      const at::ScalarType type = data["bias_type"].toScalarType();
      gradients[2] = records ? dy.sum(0, /*keepdim=*/false, type) : sum_for_bias(dy, type);
    }
    return gradients;
  }
};

// Returns the copy that autocast keeps of a parameter while it is on.
Tensor cast_to(at::ScalarType type, const Tensor& x) {
  return x.scalar_type() == type ? x : at::autocast::cached_cast(type, x, x.device().type());
}

}  // namespace

bool fits_gpu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed) {
  if (x.device().is_cpu() || !at::GradMode::is_enabled() || x.dim() < 1 || weight.dim() != 2)
    return false;
  const at::ScalarType type = product_type(weight);
  const bool casts = is_autocast_enabled(x.device().type());
  const auto fits = [&](const Tensor& each) {
    return each.device() == x.device() && each.layout() == at::kStrided &&
           (each.scalar_type() == type ||
            (casts && each.is_floating_point() && each.scalar_type() != at::kDouble));
  };
  const std::int64_t in = transposed ? 0 : 1, out = 1 - in;
  return fits(x) && fits(weight) && x.size(-1) == weight.size(in) &&
         (!bias.defined() || (fits(bias) && bias.dim() == 1 && bias.size(0) == weight.size(out))) &&
         has_device_kernels(x, type);
}

Tensor gpu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool transposed) {
  const at::ScalarType type = product_type(weight);
  const CastParameters cast = {cast_to(type, weight), bias.defined()
                                                          ? std::make_optional(cast_to(type, bias))
                                                          : std::nullopt};
  return GpuLinear::apply(cast_to(type, x), weight, optional_if_defined(bias), cast, transposed);
}

}  // namespace hasten::ops
