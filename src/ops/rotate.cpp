#include "hasten/ops/ops.h"
#include "ops/cpu.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x and y are [batch, tokens, heads * size]; cosines and sines are [batch or 1, tokens, size / 2].
void rotate_cpu(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool backwards,
                const Tensor& y) {
  const std::int64_t half = cosines.size(-1), heads = x.size(-1) / (2 * half),
                     angles = row_count(cosines);
  const float *cosine = cosines.const_data_ptr<float>(), *sine = sines.const_data_ptr<float>();
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(x, [&](std::int64_t first, std::int64_t last, std::int64_t) {
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t at = row * x.size(-1), angle = row % angles * half;
        kernel.rotate(rows_of<T>(x) + at, cosine + angle, sine + angle, backwards ? -1.0f : 1.0f,
                      rows_of<T>(y) + at, heads, half);
      }
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "rotate(Tensor x, Tensor cosines, Tensor sines, bool backwards, Tensor(a!) y) -> ()",
               rotate_cpu);
}

// The derivative of a rotation is the inverse rotation, which can be differentiated too.
struct Rotate : torch::autograd::Function<Rotate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cosines,
                        const Tensor& sines, bool backwards) {
    const Tensor y = at::empty_like(x);
    call_operator<rotate_cpu>("hasten::rotate", x, cosines, sines, backwards, y);
    context->save_for_backward({cosines, sines});
    context->saved_data["backwards"] = backwards;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    return {Rotate::apply(grads[0].contiguous(), saved[0], saved[1],
                          !context->saved_data["backwards"].toBool()),
            Tensor(), Tensor(), Tensor()};
  }
};

Tensor reference_rotation(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const std::int64_t half = cosines.size(-1);
  const Tensor heads = x.reshape({x.size(0), x.size(1), x.size(2) / (2 * half), 2 * half});
  const Tensor first = heads.narrow(-1, 0, half), second = heads.narrow(-1, half, half);
  const Tensor cosine = cosines.unsqueeze(2).to(x.scalar_type()),
               sine = sines.unsqueeze(2).to(x.scalar_type());
  return at::cat({first * cosine - second * sine, second * cosine + first * sine}, -1)
      .view(x.sizes());
}

}  // namespace

Tensor rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const bool fits = x.dim() == 3 && cosines.dim() == 3 && cosines.sizes() == sines.sizes() &&
                    cosines.size(1) == x.size(1) && cosines.size(2) > 0 &&
                    (cosines.size(0) == 1 || cosines.size(0) == x.size(0)) &&
                    x.size(2) % (2 * cosines.size(2)) == 0;
  TORCH_CHECK(fits, "rotate: got x ", x.sizes(), ", cosines ", cosines.sizes(), " and sines ",
              sines.sizes());
  if (!is_kernel_input(x) || !is_kernel_parameter(cosines) || !is_kernel_parameter(sines))
    return reference_rotation(x, cosines, sines);
  return Rotate::apply(x.contiguous(), cosines.contiguous(), sines.contiguous(),
                       /*backwards=*/false);
}

}  // namespace hasten::ops
