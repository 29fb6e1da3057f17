// File: hasten/ops/ops.h
// Operators that a transformer's training step spends its time in, each with its backward pass: on
// the CPU one pass over memory where LibTorch takes several, elsewhere the same arithmetic written
// with LibTorch's own operators.
//
//   auto u = ops::linear(x, weight, /*bias=*/{});            // [..., in] -> [..., out]
//   auto h = ops::bias_gelu(u, bias);                        // gelu(u + bias)
//   auto y = ops::dropout_add_norm(ops::linear(h, w2, {}), b2, x, gamma, beta, 1e-12, 0.1,
//   training);
//
// Shapes: `[..., n]` means any leading dimensions; tensors may be empty and have any strides.
// Types: the CPU kernels take float or bfloat16 activations and float parameters; `linear` of
// bfloat16 activations gives float without autocast, the others give the type of their input. Every
// other combination of types computes with LibTorch's operators, which promote or refuse it. Under
// autocast `linear` and `attention` compute in its type, whatever is on during the backward pass;
// the others compute in the type of their input. Derivatives: gradients taken with create_graph can
// be differentiated again; such a backward pass computes with LibTorch's operators, which takes
// longer and more memory (attention then keeps its probabilities). Randomness: each call with
// dropout draws one 64-bit seed from LibTorch's default CPU generator, so torch::manual_seed rules
// it and saving that generator's state saves it (see ops/kernels/kernels.h for how decisions follow
// from a seed). Throws c10::Error where shapes do not fit, as LibTorch's operators do. Thread rule:
// as LibTorch's operators; any thread, with shared inputs read only. Sources: BERT (Devlin et al.
// 2019), GELU (Hendrycks and Gimpel 2016), memory-lean attention backward by recomputing the
// probabilities (Dao et al. 2022), fusion by data movement (Ivanov et al. 2020, arXiv 2007.00072).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hasten::ops {

using at::Tensor;

// x weight^T + bias. x [..., in], weight [out, in], bias [out] or undefined.
// On CPUs where oneDNN's AVX-512 kernels beat the BLAS that LibTorch was built with (MKL takes its
// AVX2 path on other vendors' CPUs), float products go to oneDNN: see matrix_product_engine().
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
// Which library forms float products on this CPU: "oneDNN" or "BLAS".
std::string matrix_product_engine();

// The exact GELU of x + bias. x [..., n], bias [n].
Tensor bias_gelu(const Tensor& x, const Tensor& bias);

// layer_norm(dropout(x + bias, p) + residual). x, residual [..., n]; bias, gamma, beta [n]; p in
// [0, 1], 0 unless training.
Tensor dropout_add_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                        const Tensor& gamma, const Tensor& beta, double epsilon, double p,
                        bool training);

// x with each element zeroed with probability p in [0, 1] and the rest scaled by 1 / (1 - p), while
// training.
Tensor dropout(const Tensor& x, double p, bool training);

// What attention may look at: one number a key, or rows without padding.
class KeyMask {
 public:
  // attention_mask [batch, length], non-zero where a token may be attended to; undefined:
  // everywhere.
  explicit KeyMask(const Tensor& attention_mask);
  // The batch has one row, in which rows of these lengths lie behind each other. Each of them
  // attends to all of itself and to nothing else.
  static KeyMask packed(std::vector<std::int64_t> lengths);

  // 0 or -infinity, float [batch, length]; undefined where nothing is masked.
  const Tensor& additive() const { return additive_; }
  // Empty where rows are not packed.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

 private:
  Tensor additive_;
  std::vector<std::int64_t> lengths_;
};

// softmax(q k^T / sqrt(head size) + mask) with dropout, times v, for `heads` heads lying side by
// side. q, k, v and the result [batch, length, heads * head size]. A row with nothing to attend to
// gives zeros.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 std::int64_t heads, double p, bool training);

// The same, step by step in LibTorch's operators, each of whose results is kept for the backward
// pass: what transformers calls eager.
Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       std::int64_t heads, double p, bool training);

// word[ids] + position[position_ids] + type[type_ids]. ids, type_ids, position_ids [batch, length]
// int64 (the last two may be undefined: type 0, positions 0, 1, ...; or one row for all). The
// result is [batch, length, n]. The row `padding_id` of `word` gets no gradient, as LibTorch's
// padding_idx (-1: every row does). With `sparse` the gradient of `word` is a coalesced sparse
// tensor of the rows that were used: exact, and a few hundred rows instead of the whole vocabulary.
// It needs an optimizer that takes it (hasten::AdamW does). Throws DataError
// "models.id-out-of-range" for an id outside the table.
Tensor embedding_sum(const Tensor& word, const Tensor& position, const Tensor& type,
                     const Tensor& ids, const Tensor& position_ids, const Tensor& type_ids,
                     std::int64_t padding_id, bool sparse);

}  // namespace hasten::ops
