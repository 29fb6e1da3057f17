// File: ops/composed_attention.h (internal)
// Computes attention with LibTorch's operators, for tensors that the CPU's kernels do not support
// and for second derivatives. composed_attention.cpp also defines ops::eager_attention().
//
//   return reference_attention(q, k, v, mask, heads, p);
//
// Thread rule: any thread.
#pragma once

#include <array>

#include "ops/attention_call.h"

namespace hasten::ops {

// Computes attention with LibTorch's fused operator, if it has one. The rows are not packed.
Tensor reference_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                           const AttentionHeads& heads, double p);

// Returns the gradients of q, k and v, which are differentiable. `mask` is what KeyMask::additive()
// returns.
std::array<Tensor, 3> differentiable_attention_backward(const Tensor& dout, const Tensor& q,
                                                        const Tensor& k, const Tensor& v,
                                                        const Tensor& mask,
                                                        const AttentionCall& call);

// Returns the softmax of scores [batch, heads, queries, keys] over the keys that a mask [batch,
// keys] and `causal` admit. The mask may be undefined. A query without such keys gets zeros.
Tensor softmax_of_scores(const Tensor& scores, const Tensor& mask, bool causal);
// Returns the gradient of the scores from their softmax and its gradient.
Tensor softmax_gradient(const Tensor& softmax, const Tensor& gradient);

// A function with the arguments of attention().
using AttentionFunction = Tensor (*)(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const KeyMask& mask, const AttentionHeads& heads, double p,
                                     bool training);
// Pads packed rows for a function that needs rows of one length, and removes the padding.
Tensor attend_padded(AttentionFunction attend, const Tensor& q, const Tensor& k, const Tensor& v,
                     const KeyMask& mask, const AttentionHeads& heads, double p, bool training);

}  // namespace hasten::ops
