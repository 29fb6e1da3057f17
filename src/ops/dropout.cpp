#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void dropout_cpu(const Tensor& x, std::int64_t seed, double p, const Tensor& y,
                 const std::optional<Tensor>& seed_at) {
  const Dropout options = dropout_options(seed, p, seed_at);
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(x, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.dropout(rows_of<T>(x) + at, options, first, rows_of<T>(y) + at, last - first,
                     x.size(-1));
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "dropout(Tensor x, int seed, float p, Tensor(a!) y, Tensor? seed_at=None) -> ()",
               dropout_cpu);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input,
                        const DropoutState& dropout) {
    save(context, dropout);
    const Tensor x = input.contiguous(), y = at::empty_like(x);
    call_operator<dropout_cpu>("hasten::dropout", x, dropout.seed, dropout.p, y, dropout.seed_at);
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    return {apply_dropout(grads[0], saved_dropout(context)), Tensor()};
  }
};

}  // namespace

Tensor apply_dropout(const Tensor& x, const DropoutState& dropout) {
  return dropout.p == 0 ? x : DropoutFunction::apply(x, dropout);
}

Tensor dropout(const Tensor& x, double p, bool training) {
  if (!fits_row_kernels(x, {}) || x.dim() < 1) return at::dropout(x, p, training);
  return apply_dropout(x, draw_dropout(p, training));
}

}  // namespace hasten::ops
