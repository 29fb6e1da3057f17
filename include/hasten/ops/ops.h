// File: hasten/ops/ops.h
// The operators in which a transformer's training step spends its time, each with its backward
// pass. On the CPU, and some of them on a GPU, they make one pass over memory where LibTorch makes
// several; elsewhere, and on a GPU with HASTEN_CUDA_KERNELS=0, they are LibTorch's own operators.
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
// Under autocast `linear` and `attention` compute in its type, also in the backward pass, even if
// autocast is off by then; the others compute in the type of their input.
//
// Derivatives: gradients that are taken with create_graph can be differentiated again. Such a
// backward pass uses LibTorch's operators, which takes more time and memory (attention then keeps
// its probabilities).
//
// Randomness: each call with dropout draws one 64-bit seed from LibTorch's default CPU generator,
// so torch::manual_seed determines it, and a saved state of that generator includes it
// (ops/kernels/kernels.h says how decisions follow from a seed).
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

#include "hasten/base/detail/export.h"

namespace hasten::ops {

using at::Tensor;

// x weight^T + bias. x [..., in], weight [out, in], bias [out] or undefined.
// Large float products are computed by oneDNN on CPUs on which its AVX-512 kernels are faster than
// the BLAS of LibTorch (MKL uses AVX2 on CPUs that are not Intel's): see matrix_product_engine().
HASTEN_API Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
// x weight + bias for a matrix that is stored transposed, as GPT-2's are: weight [in, out].
HASTEN_API Tensor linear_transposed(const Tensor& x, const Tensor& weight, const Tensor& bias);
// The library that computes large float products on this CPU: "oneDNN" or "BLAS".
HASTEN_API std::string matrix_product_engine();

// The cross entropy of the logits hidden weight^T + bias against the labels, for many classes. It
// never stores all logits: it computes those of some rows at a time, and then immediately their
// part of the gradients. The backward pass multiplies the gradients by the gradient of the loss
// (Hsu et al. 2024, arXiv 2410.10989). hidden [..., in], weight [classes, in], bias [classes] or
// undefined, labels [...] int64. The result is a scalar, float for types of 16 bits: the mean over
// the labels that are not `ignore_index`, or the sum. `label_smoothing` in [0, 1] is that of
// torch.nn.CrossEntropyLoss.
//
// It keeps the gradients of hidden, weight and bias from the forward to the backward pass, which
// takes less memory than logits if there are more rows than the layer has inputs. Results equal
// those of the loss of the logits up to rounding. Under autocast, products have its type and sums
// are float. All logits are computed at once if the gradients are differentiated again, or if the
// weight has an adapter (hasten/models/lora.h).
HASTEN_API Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight,
                                       const Tensor& bias, const Tensor& labels,
                                       std::int64_t ignore_index = -100, double label_smoothing = 0,
                                       bool mean = true);

// Returns whether bias_gelu() and dropout_add_norm() add the bias of a product of x within their
// own pass over memory, on the device of x and in the type that linear() has there. If not, the
// bias costs a separate pass, and it is cheaper to let linear() add it.
HASTEN_API bool fuses_bias(const Tensor& x);

// The exact GELU of x + bias. x [..., n], bias [n].
HASTEN_API Tensor bias_gelu(const Tensor& x, const Tensor& bias);

// layer_norm(dropout(x + bias, p) + residual). x, residual [..., n]; bias, gamma, beta [n]; p in
// [0, 1], 0 unless training. Without a bias, which may be undefined, it is composed of LibTorch's
// operators.
HASTEN_API Tensor dropout_add_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                   const Tensor& gamma, const Tensor& beta, double epsilon,
                                   double p, bool training);

// A residual stream and its normalization, which the next sublayer reads.
struct NormedStream {
  Tensor stream, normed;
};

// Returns whether dropout_add_pre_norm() makes one pass over memory for this residual stream, on
// its device and in the type that linear() has there. It does on a GPU, unless
// HASTEN_CUDA_KERNELS=0. The pass then adds the bias as well, and `normed` has the type of
// linear(), to which a product would cast it.
HASTEN_API bool fuses_pre_norm(const Tensor& residual);

// stream = dropout(x + bias, p) + residual and normed = layer_norm(stream), for models whose norms
// come before the sublayers. x, residual [..., n]; gamma and beta [n]; bias [n] or undefined; p in
// [0, 1], 0 unless training. With an undefined beta the norm is rms_norm(). It is composed of
// LibTorch's operators unless fuses_pre_norm(residual).
HASTEN_API NormedStream dropout_add_pre_norm(const Tensor& x, const Tensor& bias,
                                             const Tensor& residual, const Tensor& gamma,
                                             const Tensor& beta, double epsilon, double p,
                                             bool training);

// x / sqrt(mean(x^2) + epsilon) * weight, with the mean over the last dimension (Zhang and Sennrich
// 2019). x [..., n], weight [n].
HASTEN_API Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon);

// silu(gate) * up, the gated inner layer of SwiGLU (Shazeer 2020). Both [..., n].
HASTEN_API Tensor silu_multiply(const Tensor& gate, const Tensor& up);

// Rotates queries or keys by their positions (Su et al. 2021): in each head the numbers i and i +
// size / 2 are a pair. x [batch, tokens, heads * size]; cosines and sines [batch or 1, tokens,
// size / 2] float, which get no gradients.
HASTEN_API Tensor rotate(const Tensor& x, const Tensor& cosines, const Tensor& sines);

// In training, zeroes each element of x with probability p in [0, 1] and scales the others by
// 1 / (1 - p). Otherwise returns x.
HASTEN_API Tensor dropout(const Tensor& x, double p, bool training);

// The keys to which attention may attend: a mask with one number per key, or packed rows without
// padding; either may be causal, too.
class HASTEN_API KeyMask {
 public:
  // attention_mask [batch, keys] is non-zero for the tokens that may be attended to; undefined: all
  // may.
  explicit KeyMask(const Tensor& attention_mask);
  // For a batch of one row that consists of consecutive rows of these lengths. Each of them attends
  // to all of its own tokens and to no others. `bounds`, int32 [rows + 1], has the first token of
  // each row and the end, on the device of the inputs. If it is undefined, attention on a GPU
  // copies it there in each call.
  static KeyMask packed(std::vector<std::int64_t> lengths, Tensor bounds = Tensor());

  // Returns a mask in which a token attends to no later token either. The queries are the last of
  // the keys: with fewer queries than keys, the earlier keys come from a cache.
  KeyMask causal() const;
  // Returns the mask of the first keys of each row. The rows must not be packed.
  KeyMask first_keys(std::int64_t count) const;
  // Returns the mask of a batch in which each row is repeated, one after the other, as by
  // repeat_interleave. The rows must not be packed.
  KeyMask repeated(std::int64_t times) const;

  // 0 or -infinity, float [batch, keys]; undefined if nothing is masked.
  const Tensor& additive() const { return additive_; }
  // The lengths of packed rows; empty if rows are not packed.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // The bounds of packed rows; may be undefined.
  const Tensor& bounds() const { return bounds_; }
  bool is_causal() const { return is_causal_; }

 private:
  Tensor additive_, bounds_;
  std::vector<std::int64_t> lengths_;
  bool is_causal_ = false;
};

// How attention divides the last dimension of its inputs into heads. A number of heads converts to
// it.
struct AttentionHeads {
  AttentionHeads(std::int64_t heads) : count(heads), key_count(heads) {}
  AttentionHeads(std::int64_t heads, std::int64_t key_heads,
                 std::optional<double> scale_of_scores = {})
      : count(heads), key_count(key_heads), scale(scale_of_scores) {}

  std::int64_t count;                // heads of q
  std::int64_t key_count;            // heads of k and v, each for count / key_count heads of q
  std::optional<double> scale = {};  // multiplies the scores; unset: 1 / sqrt(head size)
};

// softmax(scale q k^T + mask) with dropout, times v, for heads that are concatenated in the last
// dimension. q and the result are [batch, length, heads * head size], k and v [batch, keys, key
// heads * head size]. A query without a key to attend to gives zeros. With a causal mask the
// kernels leave out most of what is masked.
HASTEN_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                            const AttentionHeads& heads, double p, bool training);

// The same, computed step by step with LibTorch's operators, whose results are all kept for the
// backward pass; transformers calls it eager.
HASTEN_API Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const KeyMask& mask, const AttentionHeads& heads, double p,
                                  bool training);

// word[ids] + position[position_ids] + type[type_ids]. ids, type_ids, position_ids [batch, length]
// int64; type_ids and position_ids may be undefined (type 0, positions 0, 1, ...) or one row for
// all. The result is [batch, length, n]. The row `padding_id` of `word` gets no gradient, as with
// LibTorch's padding_idx (-1: every row gets one). An undefined table `position` or `type` adds
// nothing. With `sparse`, on the CPU, the gradient of `word` is a coalesced sparse tensor of the
// rows that were used: it is exact, and has a few hundred rows instead of the whole vocabulary. The
// optimizer must accept it (hasten::AdamW does).
// Throws DataError "models.id-out-of-range" for an id outside its table, and
// "models.sequence-too-long" for more tokens than positions.
HASTEN_API Tensor embedding_sum(const Tensor& word, const Tensor& position, const Tensor& type,
                                const Tensor& ids, const Tensor& position_ids,
                                const Tensor& type_ids, std::int64_t padding_id, bool sparse);

}  // namespace hasten::ops
