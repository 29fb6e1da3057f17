// File: hasten/ops/ops.h
// The operators in which a transformer's training step spends its time, each with its backward
// pass. On the CPU they make one pass over memory where LibTorch makes several; elsewhere they are
// the same arithmetic in LibTorch's own operators.
//
//   auto u = ops::linear(x, weight, /*bias=*/{});  // [..., in] -> [..., out]
//   auto h = ops::bias_gelu(u, bias);              // gelu(u + bias)
//   auto y = ops::dropout_add_norm(ops::linear(h, w2, {}), b2, x, weights, shift, 1e-12, 0.1,
//                                  /*training=*/true);
//
// Shapes: `[..., n]` means any leading dimensions; tensors may be empty and have any strides.
//
// Types: the CPU kernels take float or bfloat16 activations and float parameters. Without autocast,
// `linear` returns float for bfloat16 activations, and the others return the type of their input.
// Every other combination of types is computed by LibTorch's operators, which promote or refuse it.
// Under autocast `linear` and `attention` compute in its type, in the backward pass too, whether
// or not it is on by then; the others compute in the type of their input.
//
// Derivatives: gradients that are taken with create_graph can be differentiated again. Such a
// backward pass uses LibTorch's operators, which takes more time and memory (attention then keeps
// its probabilities).
//
// Randomness: each call with dropout draws one 64-bit seed from LibTorch's default CPU generator,
// so torch::manual_seed determines it, and a saved state of that generator includes it
// (ops/kernels/ kernels.h says how decisions follow from a seed).
//
// Throws c10::Error if shapes do not fit, as LibTorch's operators do. Thread rule: any thread;
// shared inputs are only read. Sources: BERT (Devlin et al. 2019), GELU (Hendrycks and Gimpel
// 2016), an attention backward pass that recomputes the probabilities to save memory (Dao et al.
// 2022), fusion to reduce data movement (Ivanov et al. 2020, arXiv 2007.00072).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "hasten/base/export.h"

namespace hasten::ops {

using at::Tensor;

// x weight^T + bias. x [..., in], weight [out, in], bias [out] or undefined.
// Large float products are computed by oneDNN on CPUs on which its AVX-512 kernels are faster than
// the BLAS of LibTorch (MKL uses AVX2 on CPUs that are not Intel's): see matrix_product_engine().
HASTEN_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
// The library that computes large float products on this CPU: "oneDNN" or "BLAS".
HASTEN_API std::string matrix_product_engine();

// The exact GELU of x + bias. x [..., n], bias [n].
HASTEN_API Tensor bias_gelu(const Tensor& x, const Tensor& bias);

// layer_norm(dropout(x + bias, p) + residual). x, residual [..., n]; bias, gamma, beta [n]; p in
// [0, 1], 0 unless training.
HASTEN_API Tensor dropout_add_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                   const Tensor& gamma, const Tensor& beta, double epsilon,
                                   double p, bool training);

// In training, zeroes each element of x with probability p in [0, 1] and scales the others by
// 1 / (1 - p). Otherwise returns x.
HASTEN_API Tensor dropout(const Tensor& x, double p, bool training);

// The keys to which attention may attend: a mask with one number per key, or packed rows without
// padding.
class HASTEN_API KeyMask {
 public:
  // attention_mask [batch, length] is non-zero for the tokens that may be attended to; undefined:
  // all may.
  explicit KeyMask(const Tensor& attention_mask);
  // For a batch of one row that consists of consecutive rows of these lengths. Each of them attends
  // to all of its own tokens and to no others.
  static KeyMask packed(std::vector<std::int64_t> lengths);

  // 0 or -infinity, float [batch, length]; undefined if nothing is masked.
  const Tensor& additive() const { return additive_; }
  // The lengths of packed rows; empty if rows are not packed.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

 private:
  Tensor additive_;
  std::vector<std::int64_t> lengths_;
};

// softmax(q k^T / sqrt(head size) + mask) with dropout, times v, for `heads` heads that are
// concatenated in the last dimension. q, k, v and the result are [batch, length, heads * head
// size]. A row without a key to attend to gives zeros.
HASTEN_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                            std::int64_t heads, double p, bool training);

// The same, computed step by step with LibTorch's operators, whose results are all kept for the
// backward pass; transformers calls it eager.
HASTEN_API Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const KeyMask& mask, std::int64_t heads, double p, bool training);

// word[ids] + position[position_ids] + type[type_ids]. ids, type_ids, position_ids [batch, length]
// int64; type_ids and position_ids may be undefined (type 0, positions 0, 1, ...) or one row for
// all. The result is [batch, length, n]. The row `padding_id` of `word` gets no gradient, as with
// LibTorch's padding_idx (-1: every row gets one). With `sparse`, on the CPU, the gradient of
// `word` is a coalesced sparse tensor of the rows that were used: it is exact, and has a few
// hundred rows instead of the whole vocabulary. The optimizer must accept it (hasten::AdamW does).
// Throws DataError "models.id-out-of-range" for an id outside its table, and
// "models.sequence-too-long" for more tokens than positions.
HASTEN_API Tensor embedding_sum(const Tensor& word, const Tensor& position, const Tensor& type,
                                const Tensor& ids, const Tensor& position_ids,
                                const Tensor& type_ids, std::int64_t padding_id, bool sparse);

}  // namespace hasten::ops
