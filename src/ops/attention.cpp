#include <numeric>
#include <utility>
#include <vector>

#include "hasten/ops/ops.h"
#include "ops/attention_cpu.h"
#include "ops/composed_attention.h"
#include "ops/cpu.h"
#include "ops/packed_attention.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void save(AutogradContext* context, const AttentionCall& call, double scale) {
  context->saved_data["heads"] = call.heads.count;
  context->saved_data["key_heads"] = call.heads.key_count;
  context->saved_data["scale"] = scale;
  context->saved_data["causal"] = call.causal;
  context->saved_data["packed"] = call.packed;
  save(context, call.dropout);
}

AttentionCall saved_call(AutogradContext* context) {
  auto& saved = context->saved_data;
  return {.packed = saved["packed"].toIntVector(),
          .causal = saved["causal"].toBool(),
          .heads = {saved["heads"].toInt(), saved["key_heads"].toInt(), saved["scale"].toDouble()},
          .dropout = saved_dropout(context)};
}

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& masked, const AttentionCall& call) {
    const NoAutocastGuard without_autocast;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor mask = masked.value_or(Tensor());
    const AttentionRows rows = attention_rows(q, k, mask, call.packed);
    const double scale = scale_of(q, call.heads);
    const Tensor out = at::empty(q.sizes(), q.options()),
                 log_sum = at::empty({std::ssize(rows.lengths), call.heads.count, rows.longest},
                                     at::kFloat);
    run_attention(q, k, v, rows, call, scale, out, log_sum);
    context->save_for_backward({q, k, v, mask, out, log_sum});
    save(context, call, scale);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const NoAutocastGuard without_autocast;
    const auto kept = context->get_saved_variables();
    const Tensor &q = kept[0], &k = kept[1], &v = kept[2], &mask = kept[3], &out = kept[4],
                 &log_sum = kept[5];
    const AttentionCall call = saved_call(context);
    if (needs_second_derivative()) {
      const auto [dq, dk, dv] = differentiable_attention_backward(grads[0], q, k, v, mask, call);
      return {dq, dk, dv, Tensor(), Tensor()};
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor dout = grads[0].contiguous();
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const Tensor dq = like(q), dk = like(k), dv = like(v);
    run_attention_backward(dout, q, k, v, out, attention_rows(q, k, mask, call.packed), log_sum,
                           call, *call.heads.scale, dq, dk, dv);
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

// Returns x with contiguous tokens, as the kernels need it. A token may be a part of a larger row.
Tensor with_whole_tokens(const Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) >= x.size(2) ? x : x.contiguous();
}

bool fits_kernels(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  return is_kernel_input(q) && is_kernel_input(k) && is_kernel_input(v) &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() &&
         (!mask.defined() || is_kernel_parameter(mask));
}

}  // namespace

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                     const AttentionHeads& heads, double p) {
  const bool fits =
      heads.count >= 1 && heads.key_count >= 1 && heads.count % heads.key_count == 0 &&
      q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && k.size(0) == q.size(0) &&
      q.size(2) % heads.count == 0 && k.size(2) == q.size(2) / heads.count * heads.key_count;
  TORCH_CHECK(fits, "attention: got q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), " for ",
              heads.count, " heads, ", heads.key_count, " of them of k and v");
  const auto& packed = mask.lengths();
  TORCH_CHECK(packed.empty() ||
                  (q.size(0) == 1 && k.size(1) == q.size(1) &&
                   std::accumulate(packed.begin(), packed.end(), std::int64_t{0}) == q.size(1)),
              "attention: got packed rows of ", at::IntArrayRef(packed), " tokens for q ",
              q.sizes(), " and k ", k.sizes());
  TORCH_CHECK(!mask.additive().defined() || mask.additive().sizes() == k.sizes().slice(0, 2),
              "attention: got a mask of ", mask.additive().sizes(), " for k ", k.sizes());
  TORCH_CHECK(!mask.is_causal() || k.size(1) >= q.size(1), "attention: got a causal mask for q ",
              q.sizes(), " and k ", k.sizes(), ", expected at least as many keys as queries");
  TORCH_CHECK(p >= 0 && p <= 1, "attention: got probability ", p, ", expected [0, 1]");
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 const AttentionHeads& heads, double p, bool training) {
  check_attention(q, k, v, mask, heads, p);
  const bool is_packed = !mask.lengths().empty();
  // Autocast casts the inputs of LibTorch's attention of padded rows, but not those of its
  // operators for packed rows.
  const auto cast = [&](const Tensor& x) {
    return is_packed || x.device().is_cpu() ? x.to(product_type(x)) : x;
  };
  const Tensor queries = cast(q), keys = cast(k), values = cast(v), &additive = mask.additive();
  // The result has no numbers, and no kernel has to run. The sum gives k and v a gradient, too.
  if (queries.numel() == 0) return queries + (keys.sum() + values.sum());
  const bool fits = fits_kernels(queries, keys, values, additive);
  if (is_packed && (!fits || is_packed_operator_replaced()))
    return attend_packed(queries, keys, values, mask, heads, p, training);
  if (!fits) return reference_attention(queries, keys, values, mask, heads, training ? p : 0);
  const DropoutState dropout = draw_dropout(p, training);
  TORCH_CHECK(!dropout.seed_at,
              "attention on the CPU is given its seed as a number, which a graph ", "would repeat");
  return Attention::apply(with_whole_tokens(queries), with_whole_tokens(keys),
                          with_whole_tokens(values), optional_if_defined(additive),
                          AttentionCall{mask.lengths(), mask.is_causal(), heads, dropout});
}

}  // namespace hasten::ops
