#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/norm_gradients.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void rms_norm_cpu(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                  const Tensor& rstd) {
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(x, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.rms_norm(rows_of<T>(x) + at, weight.const_data_ptr<float>(),
                      static_cast<float>(epsilon), rows_of<T>(y) + at,
                      rstd.mutable_data_ptr<float>() + first, last - first, x.size(-1));
    });
  });
}

void rms_norm_backward_cpu(const Tensor& dy, const Tensor& x, const Tensor& rstd,
                           const Tensor& weight, const Tensor& dx, const Tensor& sums) {
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_parts(x, sums, [&](std::int64_t first, std::int64_t last, std::int64_t at, float* out) {
      kernel.rms_norm_backward(rows_of<T>(dy) + at, rows_of<T>(x) + at,
                               rstd.const_data_ptr<float>() + first, weight.const_data_ptr<float>(),
                               rows_of<T>(dx) + at, out, last - first, x.size(-1));
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "rms_norm(Tensor x, Tensor weight, float epsilon, Tensor(a!) y, Tensor(b!) rstd) "
               "-> ()",
               rms_norm_cpu);
  add_operator(library,
               "rms_norm_backward(Tensor dy, Tensor x, Tensor rstd, Tensor weight, Tensor(a!) dx, "
               "Tensor(b!) sums) -> ()",
               rms_norm_backward_cpu);
}

Tensor reference_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor exact = x.to(wide);
  const Tensor rstd = (exact.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  return weight * (exact * rstd).to(x.scalar_type());
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        double epsilon) {
    const Tensor y = at::empty_like(x), rstd = at::empty({row_count(x)}, at::kFloat);
    call_operator<rms_norm_cpu>("hasten::rms_norm", x, weight, epsilon, y, rstd);
    context->save_for_backward({x, weight, rstd});
    context->saved_data["epsilon"] = epsilon;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    if (needs_second_derivative()) {
      const NormGradients of =
          rms_norm_gradients(grads[0], x, weight, context->saved_data["epsilon"].toDouble());
      return {of.z.to(x.scalar_type()), of.gamma, Tensor()};
    }
    const Tensor dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x), sums = partial_sums(x, x.size(-1));
    call_operator<rms_norm_backward_cpu>("hasten::rms_norm_backward", dy, x, rstd, weight, dx,
                                         sums);
    return {dx, total(sums), Tensor()};
  }
};

}  // namespace

NormGradients rms_norm_gradients(const Tensor& gradient, const Tensor& stored, const Tensor& gamma,
                                 double epsilon) {
  const Tensor dy = gradient.to(at::kFloat), z = stored.to(at::kFloat);
  const Tensor rstd = (z.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt();
  const Tensor hat = z * rstd, g = dy * gamma;
  return {.z = (g - hat * (g * hat).mean(-1, /*keepdim=*/true)) * rstd,
          .gamma = as_rows(dy * hat).sum(0),
          .beta = {}};
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  TORCH_CHECK(x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1), "rms_norm: got x ",
              x.sizes(), " and weight ", weight.sizes());
  if (!is_kernel_input(x) || !is_kernel_parameter(weight))
    return reference_norm(x, weight, epsilon);
  return RmsNorm::apply(x.contiguous(), weight.contiguous(), epsilon);
}

}  // namespace hasten::ops
