#include "ops/composed_attention.h"

#include <algorithm>
#include <limits>

#include "ops/cpu.h"
#include "ops/softmax_dropout.h"

namespace hasten::ops {
namespace {

// Returns x [batch, length, heads * size] as [batch, heads, length, size].
Tensor heads_first(const Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}
// The inverse of heads_first.
Tensor heads_last(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}
// Returns keys or values heads first, each head repeated for the heads of q that share it.
Tensor key_heads_first(const Tensor& x, const AttentionHeads& heads) {
  const Tensor own = heads_first(x, heads.key_count);
  const std::int64_t group = heads.count / heads.key_count;
  if (group == 1) return own;
  return own.unsqueeze(2)
      .expand({own.size(0), own.size(1), group, own.size(2), own.size(3)})
      .reshape({own.size(0), heads.count, own.size(2), own.size(3)});
}
// Returns the sum over the heads of q that share a head: the derivative of key_heads_first.
Tensor sum_of_groups(const Tensor& x, const AttentionHeads& heads) {
  const std::int64_t group = heads.count / heads.key_count;
  if (group == 1) return x;
  return x.reshape({x.size(0), heads.key_count, group, x.size(2), x.size(3)}).sum(2);
}

// Returns what a mask adds to scores [batch, heads, queries, keys], in a shape that broadcasts to
// them; undefined if it masks nothing.
Tensor bias_of(const Tensor& mask, bool causal, std::int64_t queries, std::int64_t keys,
               const at::TensorOptions& options) {
  const Tensor bias =
      mask.defined() ? mask.to(options.dtype()).view({mask.size(0), 1, 1, mask.size(1)}) : Tensor();
  if (!causal) return bias;
  const Tensor future =
      at::full({1, 1, queries, keys}, -std::numeric_limits<double>::infinity(), options)
          .triu(keys - queries + 1);
  return bias.defined() ? bias + future : future;
}

// Returns the softmax over the keys that the bias admits. A row without such keys gives zeros, as
// in the kernels. The softmax of the sum would give NaN there. at::_safe_softmax has no kernel for
// the Meta device, which a dry run needs.
Tensor masked_softmax(const Tensor& scores, const Tensor& bias) {
  const Tensor has_keys = bias.eq(0).any(-1, /*keepdim=*/true);
  return at::softmax(scores + bias.masked_fill(has_keys.logical_not(), 0), -1) *
         has_keys.to(scores.scalar_type());
}

// Returns packed rows [1, tokens, n] as [rows, longest, n], padded with zeros.
Tensor padded(const Tensor& x, at::IntArrayRef lengths) {
  return at::pad_sequence(x.squeeze(0).split_with_sizes(lengths), /*batch_first=*/true);
}
// The inverse of padded.
Tensor without_padding(const Tensor& x, at::IntArrayRef lengths) {
  std::vector<Tensor> rows;
  for (std::size_t row = 0; row < lengths.size(); ++row)
    rows.push_back(x.select(0, static_cast<std::int64_t>(row)).narrow(0, 0, lengths[row]));
  return at::cat(rows).unsqueeze(0);
}
// Returns the mask of padded rows [rows, longest]: 1 for tokens, 0 for padding.
Tensor mask_of(at::IntArrayRef lengths) {
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  return at::arange(longest).unsqueeze(0).lt(at::tensor(lengths).unsqueeze(1)).to(at::kLong);
}

// Computes the gradients of the whole batch at once with LibTorch's operators, in float.
std::array<Tensor, 3> gradients_of_rows(const Tensor& dout, const Tensor& q, const Tensor& k,
                                        const Tensor& v, const Tensor& mask,
                                        const AttentionCall& call) {
  const AttentionHeads& heads = call.heads;
  const auto merge = [&](const Tensor& x) { return heads_last(x).to(q.scalar_type()); };
  const Tensor queries = heads_first(q.to(at::kFloat), heads.count),
               keys = key_heads_first(k.to(at::kFloat), heads),
               values = key_heads_first(v.to(at::kFloat), heads),
               douts = heads_first(dout.to(at::kFloat), heads.count);
  const double scale = scale_of(q, heads);
  const Tensor scores = at::matmul(queries, keys.transpose(2, 3)) * scale;
  const Tensor p = softmax_of_scores(scores, mask, call.causal);
  const Tensor kept_p = apply_dropout(p, call.dropout),
               dp = apply_dropout(at::matmul(douts, values.transpose(2, 3)), call.dropout);
  const Tensor dscores = softmax_gradient(p, dp) * scale;
  return {merge(at::matmul(dscores, keys)),
          merge(sum_of_groups(at::matmul(dscores.transpose(2, 3), queries), heads)),
          merge(sum_of_groups(at::matmul(kept_p.transpose(2, 3), douts), heads))};
}

// Returns false unless the mask is on the CPU, because reading it elsewhere would have to wait.
bool has_row_without_keys(const Tensor& mask) {
  if (!mask.defined() || !mask.device().is_cpu()) return false;
  const float* first = mask.const_data_ptr<float>();
  const std::int64_t length = mask.size(1);
  for (std::int64_t row = 0; row < mask.size(0); ++row) {
    const float* here = first + row * mask.stride(0);
    if (std::all_of(here, here + length, [](float each) { return each != 0; })) return true;
  }
  return false;
}

}  // namespace

Tensor softmax_of_scores(const Tensor& scores, const Tensor& mask, bool causal) {
  const Tensor bias = bias_of(mask, causal, scores.size(2), scores.size(3), scores.options());
  return bias.defined() ? masked_softmax(scores, bias) : at::softmax(scores, -1);
}

Tensor softmax_gradient(const Tensor& softmax, const Tensor& gradient) {
  return softmax * (gradient - (softmax * gradient).sum(-1, /*keepdim=*/true));
}

std::array<Tensor, 3> differentiable_attention_backward(const Tensor& dout, const Tensor& q,
                                                        const Tensor& k, const Tensor& v,
                                                        const Tensor& mask,
                                                        const AttentionCall& call) {
  if (call.packed.empty()) return gradients_of_rows(dout, q, k, v, mask, call);
  const auto pad = [&](const Tensor& x) { return padded(x, call.packed); };
  const KeyMask tokens(mask_of(call.packed));
  std::array<Tensor, 3> gradients =
      gradients_of_rows(pad(dout), pad(q), pad(k), pad(v), tokens.additive(), call);
  for (Tensor& each : gradients) each = without_padding(each, call.packed);
  return gradients;
}

// LibTorch's attention. Its fused kernel has no second derivative. Second derivatives are checked
// in double, so double uses the form that has one. The fused kernels of a GPU divide by 1 - p, so
// that form also computes attention that drops everything.
Tensor reference_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                           const AttentionHeads& heads, double p) {
  const Tensor queries = heads_first(q, heads.count), keys = key_heads_first(k, heads),
               values = key_heads_first(v, heads);
  const bool is_composed = p == 1 || (q.device().is_cpu() && q.scalar_type() == at::kDouble);
  // LibTorch's causal mask needs equal numbers of queries and keys, and excludes another mask.
  const bool causal =
      mask.is_causal() && !is_composed && !mask.additive().defined() && q.size(1) == k.size(1);
  const auto bias = optional_if_defined(
      bias_of(mask.additive(), mask.is_causal() && !causal, q.size(1), k.size(1), q.options()));
  if (is_composed) {
    return heads_last(std::get<0>(at::_scaled_dot_product_attention_math(
        queries, keys, values, bias, p, /*is_causal=*/false, /*dropout_mask=*/{}, heads.scale)));
  }
  return heads_last(
      at::scaled_dot_product_attention(queries, keys, values, bias, p, causal, heads.scale));
}

Tensor attend_padded(AttentionFunction attend, const Tensor& q, const Tensor& k, const Tensor& v,
                     const KeyMask& mask, const AttentionHeads& heads, double p, bool training) {
  const auto pad = [&](const Tensor& x) { return padded(x, mask.lengths()); };
  const KeyMask tokens(mask_of(mask.lengths()).to(q.device()));
  return without_padding(attend(pad(q), pad(k), pad(v), mask.is_causal() ? tokens.causal() : tokens,
                                heads, p, training),
                         mask.lengths());
}

Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       const AttentionHeads& heads, double p, bool training) {
  check_attention(q, k, v, mask, heads, p);
  if (!mask.lengths().empty())
    return attend_padded(eager_attention, q, k, v, mask, heads, p, training);
  // The assignment frees the unscaled products.
  Tensor scores =
      at::matmul(heads_first(q, heads.count), key_heads_first(k, heads).transpose(2, 3));
  if (fuses_softmax_dropout(scores, mask.additive())) {
    const Tensor probabilities = softmax_dropout(scores, mask.additive(), mask.is_causal(),
                                                 scale_of(q, heads), draw_dropout(p, training));
    return heads_last(at::matmul(probabilities, key_heads_first(v, heads)));
  }
  scores = heads.scale ? scores * *heads.scale
                       : scores / std::sqrt(static_cast<double>(head_size_of(q, heads)));
  const Tensor bias =
      bias_of(mask.additive(), mask.is_causal(), q.size(1), k.size(1), scores.options());
  // With a causal mask the first query of a row has no key if the first key is masked.
  const bool has_query_without_keys =
      mask.is_causal() ? mask.additive().defined() : has_row_without_keys(mask.additive());
  Tensor probabilities;
  if (has_query_without_keys) {
    probabilities = masked_softmax(scores, bias);
  } else {
    if (bias.defined()) scores = scores + bias;
    probabilities = at::softmax(scores, -1);
  }
  probabilities = at::dropout(probabilities, p, training);
  return heads_last(at::matmul(probabilities, key_heads_first(v, heads)));
}

}  // namespace hasten::ops
