// File: ops/attention_cpu.h (internal)
// Attention on the CPU as the operators `hasten::attention` and `hasten::attention_backward`. A
// thread computes one head of one row at a time, so that its scores stay in the cache.
//
//   const AttentionRows rows = attention_rows(q, k, mask, call.packed);
//   run_attention(q, k, v, rows, call, scale, out, log_sum);
//
// The tensors are float or bfloat16, all of one type: q and out [batch, length, heads * size], k
// and v [batch, keys, key heads * size]. Tokens may be any number of elements apart. Thread rule:
// any thread.
#pragma once

#include <vector>

#include "ops/attention_call.h"

namespace hasten::ops {

// The length of each row, the number of its keys up to the last that may be attended to, and the
// mask of the keys.
struct AttentionRows {
  std::vector<std::int64_t> lengths, keys;
  Tensor additive;       // [rows or 1, most keys]: 0 or -infinity
  std::int64_t longest;  // the most queries of a row
};

// `mask` is what KeyMask::additive() returns, and may be undefined.
AttentionRows attention_rows(const Tensor& q, const Tensor& k, const Tensor& mask,
                             const std::vector<std::int64_t>& packed);

// Writes the result, and the logarithm of the sum of exponentials of each query to log_sum [rows,
// heads, longest], in float.
void run_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionRows& rows,
                   const AttentionCall& call, double scale, const Tensor& out,
                   const Tensor& log_sum);

// Writes the gradients of q, k and v. `dout` is contiguous.
void run_attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& out, const AttentionRows& rows, const Tensor& log_sum,
                            const AttentionCall& call, double scale, const Tensor& dq,
                            const Tensor& dk, const Tensor& dv);

}  // namespace hasten::ops
