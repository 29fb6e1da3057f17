#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DropoutAddNorm : torch::autograd::Function<DropoutAddNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& bias,
                        const Tensor& residual_input, const Tensor& gamma, const Tensor& beta,
                        double epsilon, const Dropout& dropout) {
    const Tensor x = input.contiguous(), residual = residual_input.to(x.scalar_type()).contiguous();
    const std::int64_t columns = x.size(-1), rows = row_count(x);
    Tensor z = at::empty_like(x), y = at::empty_like(x), moments = at::empty({2, rows}, at::kFloat);
    float *mean = moments.mutable_data_ptr<float>(), *rstd = mean + rows;
    with_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
      at::parallel_for(0, rows, row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        const std::int64_t at = first * columns;
        kernel.dropout_add_norm(rows_of<T>(x) + at, bias.const_data_ptr<float>(),
                                rows_of<T>(residual) + at, gamma.const_data_ptr<float>(),
                                beta.const_data_ptr<float>(), static_cast<float>(epsilon), dropout,
                                first, rows_of<T>(z) + at, rows_of<T>(y) + at, mean + first,
                                rstd + first, last - first, columns);
      });
    });
    context->save_for_backward({z, moments, gamma});
    context->saved_data["residual_type"] = residual_input.scalar_type();
    save(context, dropout);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto kept = context->get_saved_variables();
    const Tensor &z = kept[0], &moments = kept[1], &gamma = kept[2];
    const Dropout dropout = saved(context);
    const Tensor dy = grads[0].to(z.scalar_type()).contiguous();
    const std::int64_t columns = z.size(-1), rows = row_count(z);
    Tensor dz = at::empty_like(z), dx = at::empty_like(z);
    const float *mean = moments.const_data_ptr<float>(), *rstd = mean + rows;
    const Tensor sums = with_type(z, [&]<class T>(const RowKernels<T>& kernel, T*) {
      return summed_rows(
          rows, columns, 3 * columns, [&](std::int64_t first, std::int64_t last, float* out) {
            const std::int64_t at = first * columns;
            kernel.dropout_add_norm_backward(
                rows_of<T>(dy) + at, rows_of<T>(z) + at, mean + first, rstd + first,
                gamma.const_data_ptr<float>(), dropout, first, rows_of<T>(dz) + at,
                rows_of<T>(dx) + at, out, out + columns, out + 2 * columns, last - first, columns);
          });
    });
    const Tensor by_kind = sums.view({3, columns});
    return {dx,
            by_kind[0].clone(),
            dz.to(context->saved_data["residual_type"].toScalarType()),
            by_kind[1].clone(),
            by_kind[2].clone(),
            Tensor(),
            Tensor()};
  }
};

Tensor dropped(const Tensor& input, const Dropout& dropout) {
  const Tensor x = input.contiguous();
  const std::int64_t columns = x.size(-1), rows = row_count(x);
  Tensor y = at::empty_like(x);
  with_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    at::parallel_for(0, rows, row_grain(columns), [&](std::int64_t first, std::int64_t last) {
      kernel.dropout(rows_of<T>(x) + first * columns, dropout, first,
                     rows_of<T>(y) + first * columns, last - first, columns);
    });
  });
  return y;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Dropout& dropout) {
    save(context, dropout);
    return dropped(x, dropout);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {dropped(grads[0], saved(context)), Tensor()};
  }
};

}  // namespace

Tensor dropout_add_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                        const Tensor& gamma, const Tensor& beta, double epsilon, double p,
                        bool training) {
  TORCH_CHECK(x.dim() >= 1 && x.sizes() == residual.sizes() && bias.dim() == 1 &&
                  bias.size(0) == x.size(-1) && gamma.sizes() == bias.sizes() &&
                  beta.sizes() == bias.sizes(),
              "dropout_add_norm: got x ", x.sizes(), ", residual ", residual.sizes(), " and bias ",
              bias.sizes());
  if (!is_fused(x) || gamma.scalar_type() != at::kFloat || bias.scalar_type() != at::kFloat) {
    return at::layer_norm(at::dropout(x + bias, p, training) + residual, {x.size(-1)}, gamma, beta,
                          epsilon);
  }
  return DropoutAddNorm::apply(x, bias.contiguous(), residual, gamma.contiguous(),
                               beta.contiguous(), epsilon, decisions(p, training));
}

Tensor dropout(const Tensor& x, double p, bool training) {
  if (!is_fused(x) || x.dim() < 1) return at::dropout(x, p, training);
  const Dropout options = decisions(p, training);
  return options.threshold == 0 ? x : DropoutFunction::apply(x, options);
}

}  // namespace hasten::ops
