#include "ops/packed_attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/device.h"
#include "ops/composed_attention.h"

namespace hasten::ops {
namespace {

PackedOperator replacement_of_operator = nullptr;

// LibTorch's operators for packed rows divide by 1 - p, and do not take rows without tokens.
bool takes_rows(const std::vector<std::int64_t>& lengths, double p) {
  return p < 1 && *std::min_element(lengths.begin(), lengths.end()) > 0;
}

// Returns null if the rows have to be padded.
PackedOperator packed_operator(const Tensor& q, const AttentionHeads& heads) {
  if (replacement_of_operator != nullptr) return replacement_of_operator;
  const at::Device device = q.device();
  switch (
      device_of(device).packed_attention(q.scalar_type(), head_size_of(q, heads), device.index())) {
    case PackedAttention::flash:
      return flash_attention_of_rows;
    case PackedAttention::efficient:
      return efficient_attention_of_rows;
    case PackedAttention::none:
      break;
  }
  return nullptr;
}

// Returns x [1, tokens, heads * size] as [tokens, heads, size].
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  return x.squeeze(0).view({x.size(1), heads, x.size(2) / heads});
}

// Returns x [tokens, key heads, size] with each head repeated for the heads of q that share it.
Tensor repeat_heads(const Tensor& x, std::int64_t heads) {
  const std::int64_t tokens = x.size(0), own = x.size(1), size = x.size(2);
  if (own == heads) return x;
  return x.unsqueeze(2).expand({tokens, own, heads / own, size}).reshape({tokens, heads, size});
}

// Writes through a pointer, so that a dry run knows the numbers too.
Tensor bounds_of(const std::vector<std::int64_t>& lengths) {
  const Tensor bounds = at::empty({std::ssize(lengths) + 1}, at::kInt);
  std::int32_t* const to = bounds.mutable_data_ptr<std::int32_t>();
  to[0] = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row)
    to[row + 1] = to[row] + static_cast<std::int32_t>(lengths[row]);
  return bounds;
}

bool have_one_type(const Tensor& q, const Tensor& k, const Tensor& v) {
  return k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type();
}

}  // namespace

Tensor flash_attention_of_rows(const PackedHeads& rows) {
  return std::get<0>(at::_flash_attention_forward(rows.q, rows.k, rows.v, rows.bounds, rows.bounds,
                                                  rows.longest, rows.longest, rows.p, rows.causal,
                                                  /*return_debug_mask=*/false, rows.scale));
}

Tensor efficient_attention_of_rows(const PackedHeads& rows) {
  const std::int64_t heads = rows.q.size(1);
  const Tensor q = rows.q.unsqueeze(0), k = repeat_heads(rows.k, heads).unsqueeze(0),
               v = repeat_heads(rows.v, heads).unsqueeze(0);
  const bool needs_gradients =
      at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  // The types of mask are those of the kernels: 0 is none, and 1 is causal.
  return std::get<0>(at::_efficient_attention_forward(
                         q, k, v, /*bias=*/std::nullopt, rows.bounds, rows.bounds, rows.longest,
                         rows.longest, rows.p, rows.causal ? 1 : 0,
                         /*compute_log_sumexp=*/needs_gradients, rows.scale))
      .squeeze(0);
}

Tensor attend_packed(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                     const AttentionHeads& heads, double p, bool training) {
  const std::vector<std::int64_t>& lengths = mask.lengths();
  const double dropped = training ? p : 0;
  const PackedOperator attend =
      have_one_type(q, k, v) && takes_rows(lengths, dropped) ? packed_operator(q, heads) : nullptr;
  if (attend == nullptr) return attend_padded(attention, q, k, v, mask, heads, p, training);
  const PackedHeads rows{
      .q = split_heads(q, heads.count),
      .k = split_heads(k, heads.key_count),
      .v = split_heads(v, heads.key_count),
      .bounds = mask.bounds().defined() ? mask.bounds() : bounds_of(lengths).to(q.device()),
      .longest = *std::max_element(lengths.begin(), lengths.end()),
      .causal = mask.is_causal(),
      .scale = scale_of(q, heads),
      .p = dropped};
  return attend(rows).reshape(q.sizes());
}

PackedOperatorReplacement::PackedOperatorReplacement(PackedOperator replacement) {
  replacement_of_operator = replacement;
}
PackedOperatorReplacement::~PackedOperatorReplacement() { replacement_of_operator = nullptr; }

bool is_packed_operator_replaced() { return replacement_of_operator != nullptr; }

}  // namespace hasten::ops
