// The table of one instruction set, and the two kernels of the optimizer.
#include "ops/kernels/adamw_coefficients.h"
#include "ops/kernels/block_moments.h"
#include "ops/kernels/cross_entropy.h"
#include "ops/kernels/gelu.h"
#include "ops/kernels/llama_kernels.h"
#include "ops/kernels/norm.h"
#include "ops/kernels/rounded_adamw.h"
#include "ops/kernels/softmax.h"

namespace hasten::ops::HASTEN_ISA {
namespace {

#define HASTEN_TEXT_(x) #x
#define HASTEN_TEXT(x) HASTEN_TEXT_(x)

double sum_of_squares(const float* x, Index count) {
  // Sums short ranges in float and adds them in double. This is as fast as memory, and exact enough
  // for 1e9 elements.
  constexpr Index stretch = 4096;
  double total = 0;
  for (Index first = 0; first < count; first += stretch) {
    const Index n = count - first < stretch ? count - first : stretch;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Index i = 0; i < n; ++i) sum += x[first + i] * x[first + i];
    total += sum;
  }
  return total;
}

// torch.optim.AdamW's formula (Loshchilov and Hutter 2019), in the order of its fused kernel.
template <bool kHasGradient>
void adamw_loop(float* __restrict parameter, const float* __restrict gradient,
                float* __restrict exp_avg, float* __restrict exp_avg_sq, const AdamW& options,
                Index count) {
  const AdamWCoefficients step(options);
  for (Index i = 0; i < count; ++i) {
    float g = 0;
    if constexpr (kHasGradient) g = gradient[i] * step.scale;
    const float m = exp_avg[i] + step.one_minus_beta1 * (g - exp_avg[i]);
    const float v = step.beta2 * exp_avg_sq[i] + step.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    parameter[i] =
        parameter[i] * step.decay -
        step.step_size * m / (std::sqrt(v) * step.inverse_sqrt_correction2 + step.epsilon);
  }
}

void adamw(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq,
           const AdamW& options, Index count) {
  if (gradient) {
    adamw_loop<true>(parameter, gradient, exp_avg, exp_avg_sq, options, count);
  } else {
    adamw_loop<false>(parameter, gradient, exp_avg, exp_avg_sq, options, count);
  }
}

template <class T>
constexpr RowKernels<T> row_kernels() {
  return {.bias_gelu = &bias_gelu<T>,
          .bias_gelu_backward = &bias_gelu_backward<T>,
          .dropout_add_norm = &dropout_add_norm<T>,
          .dropout_add_norm_backward = &dropout_add_norm_backward<T>,
          .dropout = &dropout<T>,
          .softmax_dropout = &softmax_dropout<T>,
          .softmax_dropout_backward = &softmax_dropout_backward<T>,
          .row_dot = &row_dot<T>,
          .rms_norm = &rms_norm<T>,
          .rms_norm_backward = &rms_norm_backward<T>,
          .silu_multiply = &silu_multiply<T>,
          .silu_multiply_backward = &silu_multiply_backward<T>,
          .rotate = &rotate<T>,
          .cross_entropy = &cross_entropy<T>,
          .column_sum = &column_sum<T>};
}

template <class T>
constexpr MomentKernels<T> moment_kernels() {
  return {.adamw = &step_adamw, .lion = &step_lion};
}

}  // namespace

const Kernels& table() {
  static constexpr Kernels kernels = {.isa = HASTEN_TEXT(HASTEN_ISA),
                                      .f32 = row_kernels<float>(),
                                      .b16 = row_kernels<bf16>(),
                                      .f32_moments = moment_kernels<float>(),
                                      .b16_moments = moment_kernels<bf16>(),
                                      .sum_of_squares = &sum_of_squares,
                                      .adamw = &adamw,
                                      .adamw_b16_b16 = &rounded_adamw<bf16, bf16>,
                                      .adamw_b16_f32 = &rounded_adamw<bf16, float>,
                                      .adamw_f32_b16 = &rounded_adamw<float, bf16>,
                                      .decay_b16 = &rounded_decay};
  return kernels;
}

}  // namespace hasten::ops::HASTEN_ISA
