#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"
#include "ops/norm_gradients.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// moments [2, rows]: the means, then the reciprocal standard deviations.
void dropout_add_norm_forward_cpu(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                  const Tensor& gamma, const Tensor& beta, double epsilon,
                                  std::int64_t seed, double p, const Tensor& z, const Tensor& y,
                                  const Tensor& moments, const std::optional<Tensor>& seed_at) {
  const Dropout dropout = dropout_options(seed, p, seed_at);
  float *mean = moments.mutable_data_ptr<float>(), *rstd = mean + moments.size(1);
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(x, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.dropout_add_norm(rows_of<T>(x) + at, bias.const_data_ptr<float>(),
                              rows_of<T>(residual) + at, gamma.const_data_ptr<float>(),
                              beta.const_data_ptr<float>(), static_cast<float>(epsilon), dropout,
                              first, rows_of<T>(z) + at, rows_of<T>(y) + at, mean + first,
                              rstd + first, last - first, x.size(-1));
    });
  });
}

// sums [parts, 3 columns]: the gradients of bias, gamma and beta, side by side.
void dropout_add_norm_backward_cpu(const Tensor& dy, const Tensor& z, const Tensor& moments,
                                   const Tensor& gamma, std::int64_t seed, double p,
                                   const Tensor& dz, const Tensor& dx, const Tensor& sums,
                                   const std::optional<Tensor>& seed_at) {
  const Dropout dropout = dropout_options(seed, p, seed_at);
  const float *mean = moments.const_data_ptr<float>(), *rstd = mean + moments.size(1);
  const std::int64_t columns = z.size(-1);
  dispatch_type(z, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_parts(z, sums, [&](std::int64_t first, std::int64_t last, std::int64_t at, float* out) {
      kernel.dropout_add_norm_backward(rows_of<T>(dy) + at, rows_of<T>(z) + at, mean + first,
                                       rstd + first, gamma.const_data_ptr<float>(), dropout, first,
                                       rows_of<T>(dz) + at, rows_of<T>(dx) + at, out, out + columns,
                                       out + 2 * columns, last - first, columns);
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "dropout_add_norm(Tensor x, Tensor bias, Tensor residual, Tensor gamma, "
               "Tensor beta, float epsilon, int seed, float p, Tensor(a!) z, Tensor(b!) y, "
               "Tensor(c!) moments, Tensor? seed_at=None) -> ()",
               dropout_add_norm_forward_cpu);
  add_operator(library,
               "dropout_add_norm_backward(Tensor dy, Tensor z, Tensor moments, Tensor gamma, "
               "int seed, float p, Tensor(a!) dz, Tensor(b!) dx, Tensor(c!) sums, "
               "Tensor? seed_at=None) -> ()",
               dropout_add_norm_backward_cpu);
}

// The results are y and z = dropout(x + bias) + residual. Callers get only y. z is a result so that
// values that the backward pass computes from the stored z can be differentiated with respect to
// it.
struct DropoutAddNorm : torch::autograd::Function<DropoutAddNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& bias,
                               const Tensor& residual_input, const Tensor& gamma,
                               const Tensor& beta, double epsilon, const DropoutState& dropout) {
    const Tensor x = input.contiguous(), residual = residual_input.to(x.scalar_type()).contiguous();
    const Tensor z = at::empty_like(x), y = at::empty_like(x),
                 moments = at::empty({2, row_count(x)}, x.options().dtype(at::kFloat));
    call_operator<dropout_add_norm_forward_cpu>("hasten::dropout_add_norm", x, bias, residual,
                                                gamma, beta, epsilon, dropout.seed, dropout.p, z, y,
                                                moments, dropout.seed_at);
    context->save_for_backward({z, moments, gamma});
    context->set_materialize_grads(false);  // z has a gradient only in a second derivative.
    context->saved_data["residual_type"] = residual_input.scalar_type();
    context->saved_data["epsilon"] = epsilon;
    save(context, dropout);
    return {y, z};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    if (needs_second_derivative() || grads[1].defined())
      return differentiable_backward(context, grads[0], grads[1]);
    if (!grads[0].defined()) return variable_list(7);
    const auto kept = context->get_saved_variables();
    const Tensor &z = kept[0], &moments = kept[1], &gamma = kept[2];
    const DropoutState dropout = saved_dropout(context);
    const Tensor dy = grads[0].contiguous();
    const std::int64_t columns = z.size(-1);
    const Tensor dz = at::empty_like(z), dx = at::empty_like(z),
                 sums = partial_sums(z, 3 * columns, {.min_rows = 8, .max_parts = 528});
    call_operator<dropout_add_norm_backward_cpu>("hasten::dropout_add_norm_backward", dy, z,
                                                 moments, gamma, dropout.seed, dropout.p, dz, dx,
                                                 sums, dropout.seed_at);
    const Tensor by_kind = total(sums).view({3, columns});
    return {dx,
            by_kind[0].clone(),
            dz.to(context->saved_data["residual_type"].toScalarType()),
            by_kind[1].clone(),
            by_kind[2].clone(),
            Tensor(),
            Tensor()};
  }

  static variable_list differentiable_backward(AutogradContext* context, const Tensor& dy,
                                               const Tensor& gradient_of_z) {
    const auto kept = context->get_saved_variables();
    const Tensor &z = kept[0], &gamma = kept[2];
    NormGradients norm;
    if (dy.defined())
      norm = layer_norm_gradients(dy, z, gamma, context->saved_data["epsilon"].toDouble());
    Tensor& dz = norm.z;
    if (gradient_of_z.defined()) {
      const Tensor more = gradient_of_z.to(at::kFloat);
      dz = dz.defined() ? dz + more : more;
    }
    if (!dz.defined()) return variable_list(7);
    const Tensor dx = apply_dropout(dz, saved_dropout(context));
    return {dx.to(z.scalar_type()),
            as_rows(dx).sum(0),
            dz.to(context->saved_data["residual_type"].toScalarType()),
            norm.gamma,
            norm.beta,
            Tensor(),
            Tensor()};
  }
};

}  // namespace

NormGradients layer_norm_gradients(const Tensor& gradient, const Tensor& stored,
                                   const Tensor& gamma, double epsilon) {
  const Tensor dy = gradient.to(at::kFloat), z = stored.to(at::kFloat);
  const Tensor centred = z - z.mean(-1, /*keepdim=*/true);
  const Tensor rstd = (centred.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  const Tensor hat = centred * rstd, g = dy * gamma;
  return {.z = (g - g.mean(-1, true) - hat * (g * hat).mean(-1, true)) * rstd,
          .gamma = as_rows(dy * hat).sum(0),
          .beta = as_rows(dy).sum(0)};
}

Tensor dropout_add_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                        const Tensor& gamma, const Tensor& beta, double epsilon, double p,
                        bool training) {
  const bool has_bias = bias.defined();
  TORCH_CHECK(x.dim() >= 1 && x.sizes() == residual.sizes() && gamma.dim() == 1 &&
                  gamma.size(0) == x.size(-1) && beta.sizes() == gamma.sizes() &&
                  (!has_bias || bias.sizes() == gamma.sizes()),
              "dropout_add_norm: got x ", x.sizes(), ", residual ", residual.sizes(), ", bias ",
              has_bias ? bias.sizes() : at::IntArrayRef(), ", gamma ", gamma.sizes(), " and beta ",
              beta.sizes());
  if (!has_bias || !fits_row_kernels(x, {bias, gamma, beta}) || !fits_row_kernels(residual, {})) {
    const Tensor biased = has_bias ? x + bias_of_product(x, bias) : x;
    return at::layer_norm(at::dropout(biased, p, training) + residual, {x.size(-1)}, gamma, beta,
                          epsilon);
  }
  return DropoutAddNorm::apply(x, bias.contiguous(), residual, gamma.contiguous(),
                               beta.contiguous(), epsilon, draw_dropout(p, training))[0];
}

}  // namespace hasten::ops
