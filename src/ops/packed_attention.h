// File: ops/packed_attention.h (internal)
// Attention of packed rows (KeyMask::packed) with LibTorch's operators for rows of different
// lengths, which a device other than the CPU has. Each token attends only to the tokens of its own
// row, so nothing is computed for padding.
//
//   if (!mask.lengths().empty()) return attend_packed(q, k, v, mask, heads, p, training);
//
// The operators read where the rows begin from a tensor on the device, and the longest row from the
// host, so the host does not wait. Throws what the operators throw. Thread rule: any thread.
// Source: FlashAttention-2 (Dao 2023) and the kernels of xFormers in LibTorch 2.11.
#pragma once

#include <cstdint>

#include "ops/attention_call.h"

namespace hasten::ops {

// The arguments of an operator for packed rows. k and v have key_count heads, and each of them
// belongs to the same number of consecutive heads of q.
struct PackedHeads {
  Tensor q, k, v;        // [tokens, heads, head size]
  Tensor bounds;         // int32 [rows + 1] on the device of q: where each row begins, and the end
  std::int64_t longest;  // the most tokens of a row
  bool causal;
  double scale, p;
};

// Returns the result of attention [tokens, heads, head size].
using PackedOperator = Tensor (*)(const PackedHeads& rows);

// Calls at::_flash_attention_forward, for numbers of 16 bits.
Tensor flash_attention_of_rows(const PackedHeads& rows);
// Calls at::_efficient_attention_forward, which also takes float. Repeats the heads of k and v.
Tensor efficient_attention_of_rows(const PackedHeads& rows);

// Computes attention() with the operator that the device of q has for its type. If there is none,
// if everything is dropped, or if a row has no tokens, pads the rows.
Tensor attend_packed(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                     const AttentionHeads& heads, double p, bool training);

// While it exists, attention() calls this operator for packed rows on every device, also on the
// CPU. It is for tests, which cannot run the operators of a GPU. Thread rule: while no other thread
// computes attention.
class [[nodiscard]] PackedOperatorReplacement {
 public:
  explicit PackedOperatorReplacement(PackedOperator replacement);
  PackedOperatorReplacement(const PackedOperatorReplacement&) = delete;
  PackedOperatorReplacement& operator=(const PackedOperatorReplacement&) = delete;
  ~PackedOperatorReplacement();
};

// True while a PackedOperatorReplacement exists.
bool is_packed_operator_replaced();

}  // namespace hasten::ops
