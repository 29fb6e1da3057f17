// File: ops/gpu_rows.h (internal)
// The kernels on a GPU of operators that the CPU composes of LibTorch's. The tensors are contiguous and
// on one GPU; without another remark a parameter and a number of a row are float. seed_at is that of
// DropoutState.
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

// Computes y = gelu(x + bias) with the approximation by tanh. x and y have one type and shape [..., n].
void bias_tanh_gelu_gpu(const Tensor& x, const Tensor& bias, const Tensor& y);
// Computes dx, and to sums [parts, n] the sums of dx over the rows of each part.
void bias_tanh_gelu_backward_gpu(const Tensor& dy, const Tensor& x, const Tensor& bias,
                                 const Tensor& dx, const Tensor& sums);

// What dropout_add_pre_norm() computes if the kernel fits.
NormedStream fused_dropout_add_pre_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double epsilon,
                                        const DropoutState& dropout);

// Computes z = dropout(x + bias) + residual, float, and y = norm(z), of the type of x. Without beta the
// norm divides by the root mean square. moments [2, rows]: the means and the reciprocal deviations of z;
// [1, rows] without beta.
void dropout_add_pre_norm_gpu(const Tensor& x, const std::optional<Tensor>& bias,
                              const Tensor& residual, const Tensor& gamma,
                              const std::optional<Tensor>& beta, double epsilon, std::int64_t seed,
                              double p, const Tensor& z, const Tensor& y, const Tensor& moments,
                              const std::optional<Tensor>& seed_at);
// Computes dz, which includes the gradient of z as the stream, and dx, of the type of dy. sums [parts,
// 3 columns]: the gradients of bias, gamma and beta, side by side.
void dropout_add_pre_norm_backward_gpu(const Tensor& dy, const std::optional<Tensor>& of_stream,
                                       const Tensor& z, const Tensor& moments, const Tensor& gamma,
                                       std::int64_t seed, double p, const Tensor& dz,
                                       const Tensor& dx, const Tensor& sums,
                                       const std::optional<Tensor>& seed_at);

// Computes out = dropout(softmax(scale products + mask)) for products [batch, heads, queries, keys] of the
// type of out and a mask [batch, keys], and log_sum [rows].
void softmax_dropout_gpu(const Tensor& products, const std::optional<Tensor>& mask, bool causal,
                         double scale, std::int64_t seed, double p, const Tensor& out,
                         const Tensor& log_sum, const std::optional<Tensor>& seed_at);
// Computes the gradient of the products from that of `out`.
void softmax_dropout_backward_gpu(const Tensor& gradient, const Tensor& products,
                                  const std::optional<Tensor>& mask, bool causal, double scale,
                                  const Tensor& log_sum, std::int64_t seed, double p,
                                  const Tensor& of_products, const std::optional<Tensor>& seed_at);

// The rows of an embedding table's gradient that embedding_gradient_gpu() adds first, and the two sums
// of each that it keeps: `partial` is [chunks, 2, columns].
std::int64_t chunks_of_embedding_gradient(std::int64_t tokens);
// Adds row order[i] of `gradient` [tokens, columns] to row ids[i] of `table`, which is zeros, except for ids
// equal to `skipped`. ids [tokens] int32, ascending; order [tokens] int64.
void embedding_gradient_gpu(const Tensor& gradient, const Tensor& order, const Tensor& ids,
                            std::int64_t skipped, const Tensor& partial, const Tensor& table);

}  // namespace hasten::ops
