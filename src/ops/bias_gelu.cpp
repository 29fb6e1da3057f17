#include "hasten/ops/ops.h"
#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BiasGelu : torch::autograd::Function<BiasGelu> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& bias) {
    const Tensor x = input.contiguous();
    const std::int64_t columns = x.size(-1), rows = row_count(x);
    Tensor y = at::empty_like(x);
    with_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
      at::parallel_for(0, rows, row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        kernel.bias_gelu(rows_of<T>(x) + first * columns, bias.const_data_ptr<float>(),
                         rows_of<T>(y) + first * columns, last - first, columns);
      });
    });
    context->save_for_backward({x, bias});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &bias = saved[1];
    const Tensor dy = grads[0].to(x.scalar_type()).contiguous();
    const std::int64_t columns = x.size(-1), rows = row_count(x);
    Tensor dx = at::empty_like(x);
    const Tensor dbias = with_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
      return summed_rows(
          rows, columns, columns, [&](std::int64_t first, std::int64_t last, float* sums) {
            kernel.bias_gelu_backward(rows_of<T>(dy) + first * columns,
                                      rows_of<T>(x) + first * columns, bias.const_data_ptr<float>(),
                                      rows_of<T>(dx) + first * columns, sums, last - first,
                                      columns);
          });
    });
    return {dx, dbias};
  }
};

}  // namespace

Tensor bias_gelu(const Tensor& x, const Tensor& bias) {
  if (!is_fused(x) || bias.scalar_type() != at::kFloat) return at::gelu(x + bias);
  TORCH_CHECK(x.dim() >= 1 && bias.dim() == 1 && bias.size(0) == x.size(-1), "bias_gelu: got x ",
              x.sizes(), " and bias ", bias.sizes());
  return BiasGelu::apply(x, bias.contiguous());
}

}  // namespace hasten::ops
