// A library for `--library` with an operator that has a gradient. generate_exported.py defines the
// same operator in Python.
#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/library.h>

namespace {

struct ScaledTanh : torch::autograd::Function<ScaledTanh> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double scale) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor y = at::tanh(x * scale);
    context->save_for_backward({y});
    context->saved_data["scale"] = scale;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    const double scale = context->saved_data["scale"].toDouble();
    return {gradients[0] * ((1 - y * y) * scale), at::Tensor()};
  }
};

at::Tensor scaled_tanh(const at::Tensor& x, double scale) { return at::tanh(x * scale); }

at::Tensor differentiable_scaled_tanh(const at::Tensor& x, double scale) {
  return ScaledTanh::apply(x, scale);
}

}  // namespace

TORCH_LIBRARY(hasten_test, library) { library.def("scaled_tanh(Tensor x, float scale) -> Tensor"); }
TORCH_LIBRARY_IMPL(hasten_test, CPU, library) { library.impl("scaled_tanh", scaled_tanh); }
TORCH_LIBRARY_IMPL(hasten_test, Autograd, library) {
  library.impl("scaled_tanh", differentiable_scaled_tanh);
}
