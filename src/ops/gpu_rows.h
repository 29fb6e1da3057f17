// File: ops/gpu_rows.h (internal)
// The GPU kernels of operators that the CPU composes from LibTorch's operators. The tensors are
// contiguous and on one GPU. Parameters, and tensors with one number per row, are float unless the
// comment says otherwise. seed_at is DropoutState's.
//
//   call_operator<dropout_add_pre_norm_gpu>("hasten::dropout_add_pre_norm", x, bias, residual, ...);
//
// Throws c10::Error if types do not fit or a kernel cannot start. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hasten/ops/ops.h"
#include "ops/dropout_state.h"

namespace hasten::ops {

// Computes y = gelu(x + bias) with the approximation by tanh. x and y have one type and shape [...,
// n].
void bias_tanh_gelu_gpu(const Tensor& x, const Tensor& bias, const Tensor& y);
// Computes dx, and writes the sum of dx over the rows of each part to sums [parts, n].
void bias_tanh_gelu_backward_gpu(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                 const Tensor& dx, const Tensor& sums);

// Computes dropout_add_pre_norm() with the kernel, which must fit.
NormedStream fused_dropout_add_pre_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double epsilon,
                                        const DropoutState& dropout);

// Computes z = dropout(x + bias) + residual in float, and y = norm(z) in the type of x. Without
// beta the norm divides by the root mean square. moments [2, rows] receives the means and the
// reciprocal standard deviations of z; without beta it is [1, rows].
void dropout_add_pre_norm_gpu(const Tensor& x, const std::optional<Tensor>& bias,
                              const Tensor& residual, const Tensor& gamma,
                              const std::optional<Tensor>& beta, double epsilon, std::int64_t seed,
                              double p, const Tensor& z, const Tensor& y, const Tensor& moments,
                              const std::optional<Tensor>& seed_at);
// Computes dz, which includes the gradient of z as the stream, and dx in the type of dy. sums
// [parts, 3 columns] receives the gradients of bias, gamma and beta, side by side.
void dropout_add_pre_norm_backward_gpu(const Tensor& dy, const std::optional<Tensor>& of_stream,
                                       const Tensor& z, const Tensor& moments, const Tensor& gamma,
                                       std::int64_t seed, double p, const Tensor& dz,
                                       const Tensor& dx, const Tensor& sums,
                                       const std::optional<Tensor>& seed_at);

// Computes out = dropout(softmax(scale products + mask)) and log_sum [rows]. products [batch,
// heads, queries, keys] has the type of out; mask is [batch, keys].
void softmax_dropout_gpu(const Tensor& products, const std::optional<Tensor>& mask, bool causal,
                         double scale, std::int64_t seed, double p, const Tensor& out,
                         const Tensor& log_sum, const std::optional<Tensor>& seed_at);
// Computes the gradient of the products from the gradient of `out`.
void softmax_dropout_backward_gpu(const Tensor& gradient, const Tensor& products,
                                  const std::optional<Tensor>& mask, bool causal, double scale,
                                  const Tensor& log_sum, std::int64_t seed, double p,
                                  const Tensor& of_products, const std::optional<Tensor>& seed_at);

// Returns the number of chunks into which embedding_gradient_gpu() splits the tokens. It keeps two
// sums for each chunk: `partial` is [chunks, 2, columns].
std::int64_t chunks_of_embedding_gradient(std::int64_t tokens);
// Adds row order[i] of `gradient` [tokens, columns] to row ids[i] of `table`, which must be zeros.
// Skips ids equal to `skipped`. ids [tokens] is int32 and ascending; order [tokens] is int64.
void embedding_gradient_gpu(const Tensor& gradient, const Tensor& order, const Tensor& ids,
                            std::int64_t skipped, const Tensor& partial, const Tensor& table);

}  // namespace hasten::ops
