#include "hasten/ops/ops.h"
#include "ops/bias_tanh_gelu.h"
#include "ops/cpu.h"
#include "ops/gpu_rows.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void bias_gelu_forward_cpu(const Tensor& x, const Tensor& bias, const Tensor& y) {
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(x, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.bias_gelu(rows_of<T>(x) + at, bias.const_data_ptr<float>(), rows_of<T>(y) + at,
                       last - first, x.size(-1));
    });
  });
}

void bias_gelu_backward_cpu(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& dx,
                            const Tensor& bias_grad) {
  dispatch_type(x, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_parts(x, bias_grad,
              [&](std::int64_t first, std::int64_t last, std::int64_t at, float* sums) {
                kernel.bias_gelu_backward(rows_of<T>(dy) + at, rows_of<T>(x) + at,
                                          bias.const_data_ptr<float>(), rows_of<T>(dx) + at, sums,
                                          last - first, x.size(-1));
              });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library, "bias_gelu(Tensor x, Tensor bias, Tensor(a!) y) -> ()",
               bias_gelu_forward_cpu);
  add_operator(library,
               "bias_gelu_backward(Tensor dy, Tensor x, Tensor bias, Tensor(a!) dx, "
               "Tensor(b!) bias_grad) -> ()",
               bias_gelu_backward_cpu);
  add_device_operator(library, "bias_tanh_gelu(Tensor x, Tensor bias, Tensor(a!) y) -> ()");
  add_device_operator(library,
                      "bias_tanh_gelu_backward(Tensor dy, Tensor x, Tensor bias, Tensor(a!) dx, "
                      "Tensor(b!) bias_grad) -> ()");
}

// The two forms of GELU: LibTorch's name of its approximation, and the operators.
struct ExactForm {
  static constexpr const char* approximation = "none";
  static void forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
    call_operator<bias_gelu_forward_cpu>("hasten::bias_gelu", x, bias, y);
  }
  static void backward(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& dx,
                       const Tensor& sums) {
    call_operator<bias_gelu_backward_cpu>("hasten::bias_gelu_backward", dy, x, bias, dx, sums);
  }
};
struct TanhForm {
  static constexpr const char* approximation = "tanh";
  static void forward(const Tensor& x, const Tensor& bias, const Tensor& y) {
    call_operator<bias_tanh_gelu_gpu>("hasten::bias_tanh_gelu", x, bias, y);
  }
  static void backward(const Tensor& dy, const Tensor& x, const Tensor& bias, const Tensor& dx,
                       const Tensor& sums) {
    call_operator<bias_tanh_gelu_backward_gpu>("hasten::bias_tanh_gelu_backward", dy, x, bias, dx,
                                               sums);
  }
};

template <class Form>
struct BiasGelu : torch::autograd::Function<BiasGelu<Form>> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& bias) {
    const Tensor y = at::empty_like(x);
    Form::forward(x, bias, y);
    context->save_for_backward({x, bias});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &bias = saved[1];
    if (needs_second_derivative()) return differentiable_backward(grads[0], x, bias);
    const Tensor dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x), sums = partial_sums(x, x.size(-1));
    Form::backward(dy, x, bias, dx, sums);
    return {dx, total(sums)};
  }

 private:
  // Computes the gradients with LibTorch's operators.
  static variable_list differentiable_backward(const Tensor& dy, const Tensor& x,
                                               const Tensor& bias) {
    const Tensor d =
        at::gelu_backward(dy.to(at::kFloat), x.to(at::kFloat) + bias, Form::approximation);
    return {d.to(x.scalar_type()), as_rows(d).sum(0)};
  }
};

template <class Form>
Tensor apply_bias_gelu(const Tensor& x, const Tensor& bias) {
  TORCH_CHECK(x.dim() >= 1 && bias.dim() == 1 && bias.size(0) == x.size(-1), "bias_gelu: got x ",
              x.sizes(), " and bias ", bias.sizes());
  return BiasGelu<Form>::apply(x.contiguous(), bias.contiguous());
}

}  // namespace

bool fuses_bias(const Tensor& x) { return has_row_kernels(x, product_type(x)); }

Tensor bias_gelu(const Tensor& x, const Tensor& bias) {
  if (!fits_row_kernels(x, {bias})) return at::gelu(x + bias_of_product(x, bias));
  return apply_bias_gelu<ExactForm>(x, bias);
}

bool fuses_bias_tanh_gelu(const Tensor& x, const Tensor& bias) {
  return x.layout() == at::kStrided && bias.defined() && bias.device() == x.device() &&
         bias.scalar_type() == at::kFloat && has_device_kernels(x, product_type(x));
}

Tensor bias_tanh_gelu(const Tensor& x, const Tensor& bias) {
  return apply_bias_gelu<TanhForm>(x, bias);
}

}  // namespace hasten::ops
