// Attention of packed rows, computed row by row with LibTorch's operators. Tests on the CPU call it
// instead of the operator of a GPU (ops/packed_attention.h).
//
//   const ops::PackedOperatorReplacement on_cpu(each_row_attention);
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "ops/packed_attention.h"

namespace hasten {

// The number of calls so far.
inline std::int64_t each_row_attention_calls = 0;

inline at::Tensor each_row_attention(const ops::PackedHeads& rows) {
  ++each_row_attention_calls;
  TORCH_CHECK(rows.bounds.scalar_type() == at::kInt && rows.bounds.is_contiguous(), "bounds of ",
              rows.bounds.scalar_type());
  const std::int64_t heads = rows.q.size(1), group = heads / rows.k.size(1);
  const std::int32_t* const bounds = rows.bounds.const_data_ptr<std::int32_t>();
  std::int64_t longest = 0;
  std::vector<at::Tensor> parts;
  for (std::int64_t row = 0; row + 1 < rows.bounds.size(0); ++row) {
    const std::int64_t length = bounds[row + 1] - bounds[row];
    longest = std::max(longest, length);
    // [tokens, heads, size] -> [1, heads, length, size]
    const auto part = [&](const at::Tensor& x, std::int64_t repeats) {
      return x.narrow(0, bounds[row], length)
          .repeat_interleave(repeats, 1)
          .transpose(0, 1)
          .unsqueeze(0);
    };
    const at::Tensor out =
        at::scaled_dot_product_attention(part(rows.q, 1), part(rows.k, group), part(rows.v, group),
                                         std::nullopt, rows.p, rows.causal, rows.scale);
    parts.push_back(out.squeeze(0).transpose(0, 1));
  }
  TORCH_CHECK(rows.longest == longest, "got ", rows.longest, " as the longest row of ", longest);
  return at::cat(parts);
}

}  // namespace hasten
