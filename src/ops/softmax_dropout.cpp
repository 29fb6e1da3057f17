#include "ops/softmax_dropout.h"

#include "ops/composed_attention.h"
#include "ops/cpu.h"
#include "ops/gpu_rows.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_device_operator(library,
                      "softmax_dropout(Tensor products, Tensor? mask, bool causal, float scale, "
                      "int seed, float p, Tensor(a!) out, Tensor(b!) log_sum, "
                      "Tensor? seed_at=None) -> ()");
  add_device_operator(library,
                      "softmax_dropout_backward(Tensor gradient, Tensor products, Tensor? mask, "
                      "bool causal, float scale, Tensor log_sum, int seed, float p, "
                      "Tensor(a!) of_products, Tensor? seed_at=None) -> ()");
}

struct SoftmaxDropout : torch::autograd::Function<SoftmaxDropout> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const std::optional<Tensor>& mask, bool causal, double scale,
                        const DropoutState& dropout) {
    const Tensor products = input.contiguous();
    const Tensor out = at::empty_like(products),
                 log_sum = at::empty({row_count(products)}, products.options().dtype(at::kFloat));
    call_operator<softmax_dropout_gpu>("hasten::softmax_dropout", products, mask, causal, scale,
                                       dropout.seed, dropout.p, out, log_sum, dropout.seed_at);
    context->save_for_backward({products, log_sum, mask.value_or(Tensor())});
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    save(context, dropout);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto kept = context->get_saved_variables();
    const Tensor &products = kept[0], &log_sum = kept[1], &mask = kept[2];
    const bool causal = context->saved_data["causal"].toBool();
    const double scale = context->saved_data["scale"].toDouble();
    const DropoutState dropout = saved_dropout(context);
    variable_list gradients(5);
    if (needs_second_derivative()) {
      gradients[0] = composed_gradient(grads[0], products, mask, causal, scale, dropout);
      return gradients;
    }
    gradients[0] = at::empty_like(products);
    call_operator<softmax_dropout_backward_gpu>(
        "hasten::softmax_dropout_backward", grads[0].contiguous(), products,
        optional_if_defined(mask), causal, scale, log_sum, dropout.seed, dropout.p, gradients[0],
        dropout.seed_at);
    return gradients;
  }

 private:
  // Computes the gradient with LibTorch's operators, in float.
  static Tensor composed_gradient(const Tensor& gradient, const Tensor& products,
                                  const Tensor& mask, bool causal, double scale,
                                  const DropoutState& dropout) {
    const Tensor p = softmax_of_scores(products.to(at::kFloat) * scale, mask, causal);
    return softmax_gradient(p, apply_dropout(gradient.to(at::kFloat), dropout))
        .mul(scale)
        .to(products.scalar_type());
  }
};

}  // namespace

bool fuses_softmax_dropout(const Tensor& products, const Tensor& mask) {
  if (products.layout() != at::kStrided || products.size(-1) > kMaxDeviceColumns) return false;
  const bool fits_mask =
      !mask.defined() || (mask.device() == products.device() && mask.scalar_type() == at::kFloat);
  return fits_mask && has_device_kernels(products, products.scalar_type());
}

Tensor softmax_dropout(const Tensor& products, const Tensor& mask, bool causal, double scale,
                       const DropoutState& dropout) {
  const auto added = mask.defined() ? std::make_optional(mask.contiguous()) : std::nullopt;
  return SoftmaxDropout::apply(products, added, causal, scale, dropout);
}

}  // namespace hasten::ops
