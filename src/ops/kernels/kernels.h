// File: ops/kernels/kernels.h
// The CPU kernels of hasten's fused operators: loops over rows of contiguous memory, without torch.
// They are compiled once for each instruction set (baseline; on x86-64 also AVX2 and AVX-512);
// kernels() chooses one set for the process.
//
// Every function processes a range of rows and starts no threads; the operators split the rows
// among LibTorch's. `T` is float or bf16. Sums are computed in float (norms of gradients in
// double).
//
// Dropout stores no mask. Whether element (row, column) is kept is a function of (seed, row,
// column), Philox 4x32-10 (Salmon et al. 2011), so the backward pass repeats the decisions. A
// decision uses 16 bits: the probability is rounded to a multiple of 1/65536. The scale is the
// reciprocal of the rounded probability of keeping an element, so that the expectation is exact.
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
  // An element is dropped if its 16 random bits are below this threshold. 0 drops nothing.
  std::uint32_t threshold = 0;
  // The factor of the elements that are kept: 65536 / (65536 - threshold).
  float scale = 1.0f;

  // Rounds p in [0, 1]. Everything is dropped only if p is 1.
  static Dropout make(double p, std::uint64_t seed);
};

template <class T>
struct RowKernels {
  // y = gelu(x + bias), the exact form x/2 (1 + erf(x / sqrt 2)); [rows, columns].
  void (*bias_gelu)(const T* x, const float* bias, T* y, Index rows, Index columns);
  // Computes dx and adds its column sums to bias_grad[columns].
  void (*bias_gelu_backward)(const T* dy, const T* x, const float* bias, T* dx, float* bias_grad,
                             Index rows, Index columns);

  // z = dropout(x + bias) + residual; y = (z - mean) * rstd * gamma + beta. Stores each row's mean
  // and rstd. Dropout numbers the rows from first_row.
  void (*dropout_add_norm)(const T* x, const float* bias, const T* residual, const float* gamma,
                           const float* beta, float epsilon, const Dropout& dropout,
                           Index first_row, T* z, T* y, float* mean, float* rstd, Index rows,
                           Index columns);
  // Computes dz (the residual's gradient) and dx = dropout(dz), and adds the sums over rows to
  // bias_grad, gamma_grad and beta_grad.
  void (*dropout_add_norm_backward)(const T* dy, const T* z, const float* mean, const float* rstd,
                                    const float* gamma, const Dropout& dropout, Index first_row,
                                    T* dz, T* dx, float* bias_grad, float* gamma_grad,
                                    float* beta_grad, Index rows, Index columns);

  // y = dropout(x); it is also the backward pass, with the same decisions: dx = dropout(dy).
  void (*dropout)(const T* x, const Dropout& dropout, Index first_row, T* y, Index rows,
                  Index columns);

  // Computes p = softmax(scale * scores + mask), then dropout(p), in place on scores [rows,
  // columns]. mask[columns] holds 0 or -infinity. log_sum[row] is the log of the sum of
  // exponentials. If all columns are masked, it is infinite and p is 0.
  void (*softmax_dropout)(T* scores, const float* mask, float scale, const Dropout& dropout,
                          Index first_row, float* log_sum, Index rows, Index columns);
  // Recomputes p from the scores, and replaces the scores by dropout(p). Replaces dropped_grad by
  // the gradient of the scores: p * (dropout(dropped_grad) - delta[row]) * scale.
  void (*softmax_dropout_backward)(T* scores, T* dropped_grad, const float* mask, float scale,
                                   const Dropout& dropout, Index first_row, const float* log_sum,
                                   const float* delta, Index rows, Index columns);
  // out[row] = sum over columns of a * b, for rows `stride` elements apart.
  void (*row_dot)(const T* a, const T* b, float* out, Index rows, Index columns, Index stride);

  // y = x * rstd * gamma, with rstd = 1 / sqrt(mean(x^2) + epsilon) of each row. Stores rstd.
  void (*rms_norm)(const T* x, const float* gamma, float epsilon, T* y, float* rstd, Index rows,
                   Index columns);
  // Computes dx and adds the sums over rows to gamma_grad.
  void (*rms_norm_backward)(const T* dy, const T* x, const float* rstd, const float* gamma, T* dx,
                            float* gamma_grad, Index rows, Index columns);
  // y = gate * sigmoid(gate) * up, and the gradients of both.
  void (*silu_multiply)(const T* gate, const T* up, T* y, Index count);
  void (*silu_multiply_backward)(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                 Index count);
  // Rotates each pair of numbers i and half + i of each head by the angle with this cosine and
  // sine. direction is 1 or -1.
  void (*rotate)(const T* x, const float* cosines, const float* sines, float direction, T* y,
                 Index heads, Index half);

  // losses[row] = the cross entropy of the row of logits against its label, with label smoothing; 0
  // for the label `ignored`. With `differentiates`, replaces the logits by their gradient.
  void (*cross_entropy)(T* logits, const Index* labels, Index ignored, float smoothing,
                        bool differentiates, float* losses, Index rows, Index columns);

  // Adds the column sums of x to out[columns].
  void (*column_sum)(const T* x, float* out, Index rows, Index columns);
};

struct AdamW {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double bias_correction1, bias_correction2;  // Each is 1 - beta^step.
  float gradient_scale;                       // A factor on the gradient, for clipping.
};

// How AdamW rounds numbers that are kept in bfloat16.
struct Rounding {
  // True rounds up or down at random, so that the mean of the result is the exact number (Gupta et
  // al. 2015): the probability of rounding up is the distance from the lower neighbour, in units of
  // the spacing. False rounds to the nearest number, and then small updates vanish.
  bool stochastic = false;
  // The random numbers depend on `seed` and `step`, on the element's place in its parameter, and on
  // the number that is rounded (the parameter or one of the moments). They come from Philox, as
  // above, with 16 bits each.
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
};

// AdamW in place, computed in float, for parameters and moments of different types. The pointers
// point to element `first` of the parameter. A null gradient means zeros. All instruction sets give
// the same bits.
template <class Parameter, class Moment>
using RoundedAdamW = void (*)(Parameter* parameter, const Parameter* gradient, Moment* exp_avg,
                              Moment* exp_avg_sq, const AdamW& options, const Rounding& rounding,
                              Index first, Index count);

struct Lion {
  double learning_rate, beta1, beta2, weight_decay;
};

// The elements that share one scale in a moment of 8 bits.
inline constexpr Index kMomentBlock = 256;

// A map of the 256 codes to ascending numbers from -1 or 0 to 1, and a table that finds the code of
// the nearest number (ops/codebook.h makes both).
struct Codebook {
  float value[256];
  // next[c] is the smallest number with code c + 1; it is infinite for the last code.
  float next[256];
  // A bucket holds the numbers that have the same sign, the same exponent and the same upper 7 bits
  // of the fraction. The first bucket of a sign also holds all smaller magnitudes. A bucket
  // contains at most one boundary between codes. Its entry stores the code of its smallest
  // magnitude. The lower kLimitBits of the entry store the limit: numbers whose lower 16 bits reach
  // it have the next magnitude's code. The limit is kNoLimit if there is no boundary. Buckets of
  // negative numbers come first.
  static constexpr std::int32_t kBuckets = 23 * 128 + 1, kLimitBits = 17, kNoLimit = 1 << 16;
  // The upper 15 bits of the magnitude of the first bucket.
  static constexpr std::int32_t kFirstBucket = 104 << 7;
  std::int32_t bucket[2 * kBuckets];
};

// A moment of one parameter: `numbers`, or codes with a scale for each block of them.
struct Moment {
  float* numbers;  // null if the moment has 8 bits
  std::uint8_t* codes;
  float* scales;
  const Codebook* book;
};

// Steps that give the same bits with every instruction set. Each processes `count` elements in
// place, starting at the beginning of a block. `T` is the type of the parameter and its gradient. A
// null gradient means zeros.
template <class T>
struct MomentKernels {
  void (*adamw)(T* parameter, const T* gradient, const Moment& exp_avg, const Moment& exp_avg_sq,
                const AdamW& options, Index count);
  void (*lion)(T* parameter, const T* gradient, const Moment& exp_avg, const Lion& options,
               Index count);
};

struct Kernels {
  const char* isa;
  RowKernels<float> f32;
  RowKernels<bf16> b16;
  MomentKernels<float> f32_moments;
  MomentKernels<bf16> b16_moments;
  double (*sum_of_squares)(const float* x, Index count);
  // Steps in place. A null gradient means zeros.
  void (*adamw)(float* parameter, const float* gradient, float* exp_avg, float* exp_avg_sq,
                const AdamW& options, Index count);
  RoundedAdamW<bf16, bf16> adamw_b16_b16;
  RoundedAdamW<bf16, float> adamw_b16_f32;
  RoundedAdamW<float, bf16> adamw_f32_b16;
  // Multiplies parameters by a factor. This is AdamW's weight decay alone, with its rounding.
  void (*decay_b16)(bf16* parameter, float factor, const Rounding& rounding, Index first,
                    Index count);
};

// Returns the kernel sets that this CPU can run, the slowest first.
std::vector<const Kernels*> runnable_kernels();

// Returns the runnable set with this name, or the fastest one if the name is null or empty. Throws
// ConfigError "config.bad-value" if no runnable set has the name.
const Kernels& choose_kernels(const char* name);

// Returns the fastest runnable set, or the one that HASTEN_CPU_KERNELS=baseline|avx2|avx512 names
// (for tests). Throws as choose_kernels() does.
const Kernels& kernels();

}  // namespace hasten::ops
