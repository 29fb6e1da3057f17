#include <algorithm>
#include <limits>

#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One row of the batch as LibTorch's batched product takes it without a copy: [heads, length, head
// size], strided.
Tensor heads_of(const Tensor& x, std::int64_t row, std::int64_t heads) {
  return x.select(0, row).view({x.size(1), heads, x.size(2) / heads}).transpose(0, 1);
}

// The keys of each row up to the last one that may be attended to: padding behind it costs nothing.
std::vector<std::int64_t> attended_lengths(const Tensor& additive, std::int64_t batch,
                                           std::int64_t length) {
  std::vector<std::int64_t> lengths(batch, length);
  if (!additive.defined()) return lengths;
  const float* mask = additive.const_data_ptr<float>();
  for (std::int64_t row = 0; row < batch; ++row) {
    while (lengths[row] > 1 && mask[row * length + lengths[row] - 1] != 0) --lengths[row];
  }
  return lengths;
}

// In place on the scores [heads, length, keys] of one row of the batch; mask [batch or 1, length],
// log_sum [batch, heads, length].
void softmax_dropout_cpu(const Tensor& scores, const Tensor& mask, const Tensor& log_sum,
                         std::int64_t row, double scale, std::int64_t seed, double p) {
  const Dropout dropout = DropoutState{seed, p}.decisions();
  const std::int64_t keys = scores.size(2), lines = scores.size(0) * scores.size(1);
  const float* row_mask = mask.const_data_ptr<float>() + (row % mask.size(0)) * mask.size(1);
  float* row_log_sum = log_sum.mutable_data_ptr<float>() + row * lines;
  with_type(scores, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_rows(scores, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.softmax_dropout(rows_of<T>(scores) + at, row_mask, static_cast<float>(scale), dropout,
                             row * lines + first, row_log_sum + first, last - first, keys);
    });
  });
}

// In place on the scores, which become the dropped probabilities, and on their gradient dscores;
// delta [heads, length] is room for the sums of dout * out.
void softmax_dropout_backward_cpu(const Tensor& scores, const Tensor& dscores, const Tensor& mask,
                                  const Tensor& log_sum, const Tensor& dout, const Tensor& out,
                                  const Tensor& delta, std::int64_t row, double scale,
                                  std::int64_t seed, double p) {
  const Dropout dropout = DropoutState{seed, p}.decisions();
  const std::int64_t heads = scores.size(0), length = scores.size(1), keys = scores.size(2);
  const std::int64_t width = out.size(2), head_size = width / heads, base = row * length * width;
  const float* row_mask = mask.const_data_ptr<float>() + (row % mask.size(0)) * mask.size(1);
  const float* row_log_sum = log_sum.const_data_ptr<float>() + row * heads * length;
  float* along = delta.mutable_data_ptr<float>();
  with_type(scores, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for (std::int64_t head = 0; head < heads; ++head) {
      kernel.row_dot(rows_of<T>(dout) + base + head * head_size,
                     rows_of<T>(out) + base + head * head_size, along + head * length, length,
                     head_size, width);
    }
    for_rows(scores, [&](std::int64_t first, std::int64_t last, std::int64_t at) {
      kernel.softmax_dropout_backward(rows_of<T>(scores) + at, rows_of<T>(dscores) + at, row_mask,
                                      static_cast<float>(scale), dropout,
                                      row * heads * length + first, row_log_sum + first,
                                      along + first, last - first, keys);
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "softmax_dropout(Tensor(a!) scores, Tensor mask, Tensor(b!) log_sum, int row, "
               "float scale, int seed, float p) -> ()",
               softmax_dropout_cpu);
  add_operator(library,
               "softmax_dropout_backward(Tensor(a!) scores, Tensor(b!) dscores, Tensor mask, "
               "Tensor log_sum, Tensor dout, Tensor out, Tensor(c!) delta, int row, float scale, "
               "int seed, float p) -> ()",
               softmax_dropout_backward_cpu);
}

// [batch, length, heads * size] as [batch, heads, length, size], and back.
Tensor heads_first(const Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}
Tensor heads_last(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}
// For scores [batch, heads, length, keys].
Tensor bias_of(const Tensor& mask, at::ScalarType type) {
  return mask.to(type).view({mask.size(0), 1, 1, mask.size(1)});
}

// The softmax over the keys that the mask leaves. A row with nothing to attend to gives zeros, as
// in the kernels, where the softmax of the sum would give NaN. (at::_safe_softmax would do too, but
// has no kernel for the Meta device, which a dry run needs.)
Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  const Tensor has_keys = mask.eq(0).any(1, /*keepdim=*/true);
  const Tensor bias = bias_of(mask.masked_fill(has_keys.logical_not(), 0), scores.scalar_type());
  return at::softmax(scores + bias, -1) * bias_of(has_keys, scores.scalar_type());
}

// The gradients in LibTorch's operators, of all rows of the batch at once and in float.
variable_list differentiable_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& mask, std::int64_t heads,
                                      const DropoutState& dropout) {
  const auto split = [&](const Tensor& x) { return heads_first(x.to(at::kFloat), heads); };
  const auto merge = [&](const Tensor& x) { return heads_last(x).to(q.scalar_type()); };
  const Tensor queries = split(q), keys = split(k), values = split(v), douts = split(dout);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2) / heads));
  const Tensor scores = at::matmul(queries, keys.transpose(2, 3)) * scale;
  const Tensor p = mask.defined() ? masked_softmax(scores, mask) : at::softmax(scores, -1);
  const Tensor kept_p = dropped(p, dropout),
               dp = dropped(at::matmul(douts, values.transpose(2, 3)), dropout);
  const Tensor dscores = p * (dp - (p * dp).sum(-1, /*keepdim=*/true)) * scale;
  return {merge(at::matmul(dscores, keys)),
          merge(at::matmul(dscores.transpose(2, 3), queries)),
          merge(at::matmul(kept_p.transpose(2, 3), douts)),
          Tensor(),
          Tensor(),
          Tensor()};
}

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& masked, std::int64_t heads,
                        const DropoutState& dropout) {
    const WithoutAutocast without_autocast;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor mask = masked.value_or(Tensor());
    const std::int64_t batch = q.size(0), length = q.size(1);
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(2) / heads));
    const Tensor out = at::empty_like(q), log_sum = at::empty({batch, heads, length}, at::kFloat);
    const auto lengths = attended_lengths(mask, batch, length);
    const Tensor additive = mask.defined() ? mask : at::zeros({1, length}, at::kFloat);
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::int64_t keys = lengths[row];
      const Tensor keys_of = heads_of(k, row, heads).narrow(1, 0, keys),
                   values_of = heads_of(v, row, heads).narrow(1, 0, keys);
      const Tensor scores = at::bmm(heads_of(q, row, heads), keys_of.transpose(1, 2));
      call<softmax_dropout_cpu>("hasten::softmax_dropout", scores, additive, log_sum, row, scale,
                                dropout.seed, dropout.p);
      heads_of(out, row, heads).copy_(at::bmm(scores, values_of));
    }
    context->save_for_backward({q, k, v, mask, out, log_sum});
    context->saved_data["heads"] = heads;
    save(context, dropout);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WithoutAutocast without_autocast;
    const auto kept = context->get_saved_variables();
    const Tensor &q = kept[0], &k = kept[1], &v = kept[2], &mask = kept[3], &out = kept[4],
                 &log_sum = kept[5];
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const DropoutState dropout = saved_dropout(context);
    if (needs_second_derivative())
      return differentiable_backward(grads[0], q, k, v, mask, heads, dropout);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const std::int64_t batch = q.size(0), length = q.size(1);
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(2) / heads));
    const Tensor dout = grads[0].contiguous();
    const auto lengths = attended_lengths(mask, batch, length);
    const Tensor additive = mask.defined() ? mask : at::zeros({1, length}, at::kFloat);
    const Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v),
                 delta = at::empty({heads, length}, at::kFloat);
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::int64_t keys = lengths[row];
      const Tensor queries_of = heads_of(q, row, heads), douts_of = heads_of(dout, row, heads);
      const Tensor keys_of = heads_of(k, row, heads).narrow(1, 0, keys),
                   values_of = heads_of(v, row, heads).narrow(1, 0, keys);
      const Tensor scores = at::bmm(queries_of, keys_of.transpose(1, 2));
      const Tensor dscores = at::bmm(douts_of, values_of.transpose(1, 2));
      call<softmax_dropout_backward_cpu>("hasten::softmax_dropout_backward", scores, dscores,
                                         additive, log_sum, dout, out, delta, row, scale,
                                         dropout.seed, dropout.p);
      heads_of(dq, row, heads).copy_(at::bmm(dscores, keys_of));
      const auto fill = [&](const Tensor& grad, const Tensor& value) {
        const Tensor whole = heads_of(grad, row, heads);
        whole.narrow(1, 0, keys).copy_(value);
        if (keys < length) whole.narrow(1, keys, length - keys).zero_();
      };
      fill(dk, at::bmm(dscores.transpose(1, 2), queries_of));
      fill(dv, at::bmm(scores.transpose(1, 2), douts_of));
    }
    return {dq, dk, dv, Tensor(), Tensor(), Tensor()};
  }
};

// LibTorch's own. Its fused kernel has no second derivative; double is the type in which such are
// checked, so double takes the form that has one.
Tensor reference_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                           std::int64_t heads, double p) {
  const auto bias =
      mask.defined() ? std::make_optional(bias_of(mask, q.scalar_type())) : std::nullopt;
  const Tensor queries = heads_first(q, heads), keys = heads_first(k, heads),
               values = heads_first(v, heads);
  if (q.device().is_cpu() && q.scalar_type() == at::kDouble) {
    return heads_last(
        std::get<0>(at::_scaled_dot_product_attention_math(queries, keys, values, bias, p)));
  }
  return heads_last(at::scaled_dot_product_attention(queries, keys, values, bias, p));
}

// Reading from a GPU would stall it; there the mask is always applied.
bool attends_everywhere(const Tensor& attention_mask) {
  if (!attention_mask.device().is_cpu()) return false;
  const Tensor mask = attention_mask.to(at::kLong).contiguous();
  const std::int64_t* first = mask.const_data_ptr<std::int64_t>();
  return std::all_of(first, first + mask.numel(), [](std::int64_t each) { return each != 0; });
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
           std::int64_t heads, double p) {
  TORCH_CHECK(heads >= 1 && q.dim() == 3 && q.sizes() == k.sizes() && q.sizes() == v.sizes() &&
                  q.size(2) % heads == 0,
              "attention: got q ", q.sizes(), ", k ", k.sizes(), ", v ", v.sizes(), " for ", heads,
              " heads");
  TORCH_CHECK(!mask.additive().defined() || mask.additive().sizes() == q.sizes().slice(0, 2),
              "attention: got a mask of ", mask.additive().sizes(), " for q ", q.sizes());
  TORCH_CHECK(p >= 0 && p <= 1, "attention: got probability ", p, ", expected [0, 1]");
}

bool fits_kernels(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  return is_fused(q) && is_fused(k) && is_fused(v) && k.scalar_type() == q.scalar_type() &&
         v.scalar_type() == q.scalar_type() && (!mask.defined() || is_fused_parameter(mask));
}

// Known without waiting on the CPU only, where the mask can be read.
bool has_row_without_keys(const Tensor& mask) {
  if (!mask.defined() || !mask.device().is_cpu()) return false;
  const float* first = mask.const_data_ptr<float>();
  const std::int64_t length = mask.size(1);
  for (std::int64_t row = 0; row < mask.size(0); ++row) {
    const float* here = first + row * length;
    if (std::all_of(here, here + length, [](float each) { return each != 0; })) return true;
  }
  return false;
}

}  // namespace

KeyMask::KeyMask(const Tensor& attention_mask) {
  if (!attention_mask.defined() || attends_everywhere(attention_mask)) return;
  const Tensor masked = attention_mask.eq(0);
  additive_ = at::zeros(masked.sizes(), masked.options().dtype(at::kFloat))
                  .masked_fill_(masked, -std::numeric_limits<float>::infinity());
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 std::int64_t heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  const auto cast = [](const Tensor& x) { return x.device().is_cpu() ? x.to(product_type(x)) : x; };
  const Tensor queries = cast(q), keys = cast(k), values = cast(v), &additive = mask.additive();
  if (!fits_kernels(queries, keys, values, additive))
    return reference_attention(queries, keys, values, additive, heads, training ? p : 0);
  return Attention::apply(queries.contiguous(), keys.contiguous(), values.contiguous(),
                          defined(additive), heads, draw_dropout(p, training));
}

Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       std::int64_t heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  const double size = static_cast<double>(q.size(2) / heads);
  Tensor scores =
      at::matmul(heads_first(q, heads), heads_first(k, heads).transpose(2, 3)) / std::sqrt(size);
  const Tensor& additive = mask.additive();
  Tensor probabilities;
  if (has_row_without_keys(additive)) {
    probabilities = masked_softmax(scores, additive);
  } else {
    if (additive.defined()) scores = scores + bias_of(additive, scores.scalar_type());
    probabilities = at::softmax(scores, -1);
  }
  probabilities = at::dropout(probabilities, p, training);
  return heads_last(at::matmul(probabilities, heads_first(v, heads)));
}

}  // namespace hasten::ops
