// File: ops/kernels/kernels.h
// The CPU kernels behind hasten's fused operators: loops over rows of contiguous memory, without
// torch, compiled once for each instruction set (baseline; on x86-64 also AVX2 and AVX-512) and
// chosen once in a process by kernels().
//
// Every function works on a range of rows and starts no threads; the operators split the rows among
// LibTorch's. `T` is float or bf16; sums are always formed in float (norms of gradients in double).
//
// Dropout draws no stored mask. Whether element (row, column) is kept is a function of (seed, row,
// column), Philox 4x32-10 (Salmon et al. 2011), so that the backward pass draws the same decisions
// again. One decision uses 16 bits: the probability is rounded to a multiple of 1/65536 and the
// scale is the reciprocal of the rounded one, so that the expectation is exact.
#pragma once

#include <cstdint>
#include <vector>

namespace hasten::ops {

using Index = std::int64_t;

// bfloat16 as LibTorch stores it: the upper half of a float.
struct bf16 {
  std::uint16_t bits;
};

struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t threshold =
      0;               // dropped where 16 random bits are below this; 0: nothing is dropped
  float scale = 1.0f;  // applied to what is kept: 65536 / (65536 - threshold)

  // Rounds the probability; p in [0, 1]. Everything is dropped at 1 only.
  static Dropout make(double p, std::uint64_t seed);
};

template <class T>
struct RowKernels {
  // y = gelu(x + bias), the exact form x/2 (1 + erf(x / sqrt 2)); [rows, columns].
  void (*bias_gelu)(const T* x, const float* bias, T* y, Index rows, Index columns);
  // dx, and bias_grad[columns] += the column sums of dx.
  void (*bias_gelu_backward)(const T* dy, const T* x, const float* bias, T* dx, float* bias_grad,
                             Index rows, Index columns);

  // z = dropout(x + bias) + residual; y = (z - mean) * rstd * gamma + beta, with mean and rstd of
  // each row stored. Rows are numbered from first_row for the dropout decisions.
  void (*dropout_add_norm)(const T* x, const float* bias, const T* residual, const float* gamma,
                           const float* beta, float epsilon, const Dropout& dropout,
                           Index first_row, T* z, T* y, float* mean, float* rstd, Index rows,
                           Index columns);
  // dz (the residual's gradient), dx = dropout(dz), and the sums over rows added to bias_grad,
  // gamma_grad, beta_grad.
  void (*dropout_add_norm_backward)(const T* dy, const T* z, const float* mean, const float* rstd,
                                    const float* gamma, const Dropout& dropout, Index first_row,
                                    T* dz, T* dx, float* bias_grad, float* gamma_grad,
                                    float* beta_grad, Index rows, Index columns);

  // y = dropout(x), and the backward with the same decisions: dx = dropout(dy).
  void (*dropout)(const T* x, const Dropout& dropout, Index first_row, T* y, Index rows,
                  Index columns);

  // In place on scores [rows, columns]: p = softmax(scale * scores + mask), then dropout(p).
  // mask[columns] holds 0 or -infinity. log_sum[row] = log of the sum of exponentials (infinite
  // where all is masked: p is 0).
  void (*softmax_dropout)(T* scores, const float* mask, float scale, const Dropout& dropout,
                          Index first_row, float* log_sum, Index rows, Index columns);
  // From the scores again: dropped = dropout(p) (in place of scores) and, in place of dropped_grad,
  // the gradient of the scores: p * (dropout(dropped_grad) - delta[row]) * scale.
  void (*softmax_dropout_backward)(T* scores, T* dropped_grad, const float* mask, float scale,
                                   const Dropout& dropout, Index first_row, const float* log_sum,
                                   const float* delta, Index rows, Index columns);
  // out[row] = sum over columns of a * b, for rows that lie `stride` elements apart.
  void (*row_dot)(const T* a, const T* b, float* out, Index rows, Index columns, Index stride);

  // out[columns] += the column sums of x.
  void (*column_sum)(const T* x, float* out, Index rows, Index columns);
};

struct AdamW {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // 1 - beta^step
  float gradient_scale;  // the gradient is multiplied by this as it is read (clipping)
};

struct Kernels {
  const char* isa;
  RowKernels<float> f32;
  RowKernels<bf16> b16;
  double (*sum_of_squares)(const float* x, Index count);
  // In place; a null gradient stands for zeros.
  void (*adamw)(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq,
                const AdamW& options, Index count);
};

// The compiled sets that this CPU can run, the slowest first.
std::vector<const Kernels*> runnable_kernels();

// The fastest of them, or the one that HASTEN_CPU_KERNELS=baseline|avx2|avx512 names (for tests).
const Kernels& kernels();

}  // namespace hasten::ops
