// File: ops/attention_call.h (internal)
// The arguments of a call of attention (hasten/ops/ops.h), which its forms share: the operators on
// the CPU (ops/attention_cpu.h) and LibTorch's operators (ops/composed_attention.h).
//
//   check_attention(q, k, v, mask, heads, p);
//   const AttentionCall call{mask.lengths(), mask.is_causal(), heads, draw_dropout(p, training)};
//
// Thread rule: values without shared state.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "hasten/ops/ops.h"
#include "ops/dropout_state.h"

namespace hasten::ops {

// The arguments that are not tensors. `packed` has the lengths of packed rows, and is empty if the
// rows are not packed.
struct AttentionCall {
  std::vector<std::int64_t> packed;
  bool causal;
  AttentionHeads heads;
  DropoutState dropout;
};

inline std::int64_t head_size_of(const Tensor& q, const AttentionHeads& heads) {
  return q.size(2) / heads.count;
}

// Returns the factor of the scores.
inline double scale_of(const Tensor& q, const AttentionHeads& heads) {
  return heads.scale.value_or(1 / std::sqrt(static_cast<double>(head_size_of(q, heads))));
}

// Throws c10::Error for tensors that do not fit together.
void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                     const AttentionHeads& heads, double p);

}  // namespace hasten::ops
