#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"
#include "ops/gpu_rows.h"
#include "ops/norm_gradients.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_device_operator(library,
                      "dropout_add_pre_norm(Tensor x, Tensor? bias, Tensor residual, Tensor gamma, "
                      "Tensor? beta, float epsilon, int seed, float p, Tensor(a!) z, Tensor(b!) y, "
                      "Tensor(c!) moments, Tensor? seed_at=None) -> ()");
  add_device_operator(library,
                      "dropout_add_pre_norm_backward(Tensor dy, Tensor? of_stream, Tensor z, "
                      "Tensor moments, Tensor gamma, int seed, float p, Tensor(a!) dz, "
                      "Tensor(b!) dx, Tensor(c!) sums, Tensor? seed_at=None) -> ()");
}

// The results are z = dropout(x + bias) + residual and y = norm(z).
struct DropoutAddPreNorm : torch::autograd::Function<DropoutAddPreNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& input,
                               const std::optional<Tensor>& bias, const Tensor& stream,
                               const Tensor& gamma, const std::optional<Tensor>& beta,
                               double epsilon, const DropoutState& dropout) {
    const Tensor x = input.contiguous(), residual = stream.contiguous();
    const Tensor z = at::empty_like(residual), y = at::empty_like(x),
                 moments = at::empty({beta ? 2 : 1, row_count(x)}, z.options());
    call_operator<dropout_add_pre_norm_gpu>("hasten::dropout_add_pre_norm", x, bias, residual,
                                            gamma, beta, epsilon, dropout.seed, dropout.p, z, y,
                                            moments, dropout.seed_at);
    context->save_for_backward({z, moments, gamma});
    context->set_materialize_grads(false);
    context->saved_data["type"] = x.scalar_type();
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["epsilon"] = epsilon;
    save(context, dropout);
    return {z, y};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    if (needs_second_derivative() || !grads[1].defined())
      return composed_backward(context, grads[0], grads[1]);
    const auto kept = context->get_saved_variables();
    const Tensor &z = kept[0], &moments = kept[1], &gamma = kept[2];
    const DropoutState dropout = saved_dropout(context);
    const Tensor dy = grads[1].contiguous();
    const std::int64_t columns = z.size(-1);
    const auto of_stream =
        grads[0].defined() ? std::make_optional(grads[0].contiguous()) : std::nullopt;
    const Tensor dz = at::empty_like(z), dx = at::empty_like(dy),
                 sums = partial_sums(z, 3 * columns, {.min_rows = 8, .max_parts = 528});
    call_operator<dropout_add_pre_norm_backward_gpu>("hasten::dropout_add_pre_norm_backward", dy,
                                                     of_stream, z, moments, gamma, dropout.seed,
                                                     dropout.p, dz, dx, sums, dropout.seed_at);
    const Tensor by_kind = total(sums).view({3, columns});
    return {dx,
            has_bias(context) ? by_kind[0].clone() : Tensor(),
            dz,
            by_kind[1].clone(),
            centres(moments) ? by_kind[2].clone() : Tensor(),
            Tensor(),
            Tensor()};
  }

 private:
  static bool has_bias(AutogradContext* context) {
    return context->saved_data["has_bias"].toBool();
  }
  static bool centres(const Tensor& moments) { return moments.size(0) == 2; }

  // Uses LibTorch's operators, for second derivatives and if y has no gradient.
  static variable_list composed_backward(AutogradContext* context, const Tensor& of_stream,
                                         const Tensor& dy) {
    const auto kept = context->get_saved_variables();
    const Tensor &z = kept[0], &moments = kept[1], &gamma = kept[2];
    const double epsilon = context->saved_data["epsilon"].toDouble();
    if (!of_stream.defined() && !dy.defined()) return variable_list(7);
    NormGradients norm;
    if (dy.defined()) {
      norm = centres(moments) ? layer_norm_gradients(dy, z, gamma, epsilon)
                              : rms_norm_gradients(dy, z, gamma, epsilon);
    }
    const Tensor dz = !dy.defined() ? of_stream : of_stream.defined() ? of_stream + norm.z : norm.z;
    const Tensor dx = apply_dropout(dz, saved_dropout(context));
    return {dx.to(context->saved_data["type"].toScalarType()),
            has_bias(context) ? as_rows(dx).sum(0) : Tensor(),
            dz,
            norm.gamma,
            norm.beta,
            Tensor(),
            Tensor()};
  }
};

bool fits_kernel(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                 const Tensor& beta) {
  const auto is_parameter = [&](const Tensor& each) {
    return !each.defined() || fits_row_kernels(residual, {each});
  };
  return fuses_pre_norm(residual) && x.layout() == at::kStrided &&
         x.device() == residual.device() && x.scalar_type() == product_type(residual) &&
         is_parameter(bias) && is_parameter(gamma) && is_parameter(beta);
}

void check_shapes(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                  const Tensor& beta) {
  const auto sizes_of = [](const Tensor& each) {
    return each.defined() ? each.sizes() : at::IntArrayRef();
  };
  const auto fits = [&](const Tensor& each) {
    return !each.defined() || each.sizes() == gamma.sizes();
  };
  TORCH_CHECK(x.dim() >= 1 && x.sizes() == residual.sizes() && gamma.dim() == 1 &&
                  gamma.size(0) == x.size(-1) && fits(beta) && fits(bias),
              "dropout_add_pre_norm: got x ", x.sizes(), ", residual ", residual.sizes(), ", bias ",
              sizes_of(bias), ", gamma ", gamma.sizes(), " and beta ", sizes_of(beta));
}

std::optional<Tensor> contiguous_or_none(const Tensor& x) {
  return x.defined() ? std::make_optional(x.contiguous()) : std::nullopt;
}

}  // namespace

bool fuses_pre_norm(const Tensor& residual) {
  return residual.scalar_type() == at::kFloat &&
         has_device_kernels(residual, product_type(residual));
}

NormedStream dropout_add_pre_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                  const Tensor& gamma, const Tensor& beta, double epsilon, double p,
                                  bool training) {
  check_shapes(x, bias, residual, gamma, beta);
  if (!fits_kernel(x, bias, residual, gamma, beta)) {
    const Tensor biased = bias.defined() ? x + bias_of_product(x, bias) : x;
    const Tensor z = residual + ops::dropout(biased, p, training);
    return {z, beta.defined() ? at::layer_norm(z, {x.size(-1)}, gamma, beta, epsilon)
                              : rms_norm(z, gamma, epsilon)};
  }
  return fused_dropout_add_pre_norm(x, bias, residual, gamma, beta, epsilon,
                                    draw_dropout(p, training));
}

NormedStream fused_dropout_add_pre_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double epsilon,
                                        const DropoutState& dropout) {
  const variable_list both =
      DropoutAddPreNorm::apply(x, contiguous_or_none(bias), residual, gamma.contiguous(),
                               contiguous_or_none(beta), epsilon, dropout);
  return {both[0], both[1]};
}

}  // namespace hasten::ops
