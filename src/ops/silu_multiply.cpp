#include "hasten/ops/ops.h"
#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void silu_multiply_cpu(const Tensor& gate, const Tensor& up, const Tensor& y) {
  dispatch_type(gate, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(gate, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.silu_multiply(rows_of<T>(gate) + at, rows_of<T>(up) + at, rows_of<T>(y) + at,
                           (last - first) * gate.size(-1));
    });
  });
}

void silu_multiply_backward_cpu(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                const Tensor& dgate, const Tensor& dup) {
  dispatch_type(gate, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(gate, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.silu_multiply_backward(rows_of<T>(dy) + at, rows_of<T>(gate) + at, rows_of<T>(up) + at,
                                    rows_of<T>(dgate) + at, rows_of<T>(dup) + at,
                                    (last - first) * gate.size(-1));
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library, "silu_multiply(Tensor gate, Tensor up, Tensor(a!) y) -> ()",
               silu_multiply_cpu);
  add_operator(library,
               "silu_multiply_backward(Tensor dy, Tensor gate, Tensor up, Tensor(a!) dgate, "
               "Tensor(b!) dup) -> ()",
               silu_multiply_backward_cpu);
}

struct SiluMultiply : torch::autograd::Function<SiluMultiply> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    const Tensor y = at::empty_like(gate);
    call_operator<silu_multiply_cpu>("hasten::silu_multiply", gate, up, y);
    context->save_for_backward({gate, up});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    if (needs_second_derivative()) {
      const Tensor share = at::sigmoid(gate), gradient = grads[0];
      return {gradient * up * share * (1 + gate * (1 - share)), gradient * gate * share};
    }
    const Tensor dy = grads[0].contiguous();
    const Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    call_operator<silu_multiply_backward_cpu>("hasten::silu_multiply_backward", dy, gate, up, dgate,
                                              dup);
    return {dgate, dup};
  }
};

}  // namespace

Tensor silu_multiply(const Tensor& gate, const Tensor& up) {
  TORCH_CHECK(gate.dim() >= 1 && gate.sizes() == up.sizes(), "silu_multiply: got gate ",
              gate.sizes(), " and up ", up.sizes());
  if (!is_kernel_input(gate) || !is_kernel_input(up) || gate.scalar_type() != up.scalar_type())
    return at::silu(gate) * up;
  return SiluMultiply::apply(gate.contiguous(), up.contiguous());
}

}  // namespace hasten::ops
