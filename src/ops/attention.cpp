#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <limits>

#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

// Which keys count, and how: mask [batch or 1, length] holds 0 or -infinity, `keys` the number of
// keys of each row up to the last one that counts.
struct Keys {
  const Tensor& mask;
  at::IntArrayRef counts;

  const float* mask_of(std::int64_t row) const {
    return mask.const_data_ptr<float>() + (row % mask.size(0)) * mask.size(1);
  }
};

// One head of one row of the batch inside of x [batch, length, heads * size].
template <class T>
struct Head {
  std::int64_t row, index, heads, length, width;

  static Head of(const Tensor& x, std::int64_t item, std::int64_t heads) {
    return {item / heads, item % heads, heads, x.size(1), x.size(2)};
  }
  std::int64_t size() const { return width / heads; }
  T* start_of(const Tensor& x) const {
    return rows_of<T>(x) + row * length * width + index * size();
  }
  // Its first rows of x, without a copy.
  Tensor matrix_of(const Tensor& x, std::int64_t rows) const {
    return at::from_blob(start_of(x), {rows, size()}, {width, 1}, x.options());
  }
  // The place of its lines among those of [batch, heads, length].
  std::int64_t first_line() const { return (row * heads + index) * length; }
};

// The matrix in the other order, without the dispatcher.
Tensor transposed(const Tensor& x) {
  return at::from_blob(x.data_ptr(), {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)},
                       x.options());
}

// LibTorch's product, without its dispatcher: inside of a parallel region each thread forms its
// own, which takes less time than all of them forming one.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor written = out;
  at::cpu::mm_out(written, a, b);
}

// Room for the scores of one head for each of the threads that share the heads of all rows:
// [parts, matrices, length * the most keys of a row].
Tensor room_for_scores(const Tensor& q, at::IntArrayRef keys, std::int64_t heads,
                       std::int64_t matrices) {
  const std::int64_t parts = std::clamp<std::int64_t>(q.size(0) * heads, 1, at::get_num_threads());
  const std::int64_t most = keys.empty() ? 0 : *std::max_element(keys.begin(), keys.end());
  return at::empty({parts, matrices, q.size(1) * most}, q.options());
}

// The scores of part `part` and matrix `matrix`, as [length, keys].
template <class T>
Tensor scores_in(const Tensor& room, std::int64_t part, std::int64_t matrix, std::int64_t length,
                 std::int64_t keys) {
  T* const first = rows_of<T>(room) + (part * room.size(1) + matrix) * room.size(2);
  return at::from_blob(first, {length, keys}, room.options());
}

// body(part, item) for every head of every row. A part takes every n-th item, because rows with few
// keys lie beside each other where the data is sorted by length.
template <class Body>
void for_heads(const Tensor& room, std::int64_t items, Body body) {
  const std::int64_t parts = room.size(0);
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      for (std::int64_t item = part; item < items; item += parts) body(part, item);
    }
  });
}

// q, k, v, out [batch, length, heads * size]; log_sum [batch, heads, length].
void attention_cpu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                   at::IntArrayRef key_counts, std::int64_t heads, double scale, std::int64_t seed,
                   double p, const Tensor& room, const Tensor& out, const Tensor& log_sum) {
  const Dropout dropout = DropoutState{seed, p}.decisions();
  const Keys all_keys{mask, key_counts};
  with_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_heads(room, q.size(0) * heads, [&](std::int64_t part, std::int64_t item) {
      const auto head = Head<T>::of(q, item, heads);
      const std::int64_t keys = key_counts[head.row], length = head.length;
      const Tensor scores = scores_in<T>(room, part, 0, length, keys);
      multiply(scores, head.matrix_of(q, length), transposed(head.matrix_of(k, keys)));
      kernel.softmax_dropout(rows_of<T>(scores), all_keys.mask_of(head.row),
                             static_cast<float>(scale), dropout, head.first_line(),
                             log_sum.mutable_data_ptr<float>() + head.first_line(), length, keys);
      multiply(head.matrix_of(out, length), scores, head.matrix_of(v, keys));
    });
  });
}

// delta [parts, length] is room for the sums of dout * out.
void attention_backward_cpu(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& out, const Tensor& mask, const Tensor& log_sum,
                            at::IntArrayRef key_counts, std::int64_t heads, double scale,
                            std::int64_t seed, double p, const Tensor& room, const Tensor& delta,
                            const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const Dropout dropout = DropoutState{seed, p}.decisions();
  const Keys all_keys{mask, key_counts};
  with_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_heads(room, q.size(0) * heads, [&](std::int64_t part, std::int64_t item) {
      const auto head = Head<T>::of(q, item, heads);
      const std::int64_t keys = key_counts[head.row], length = head.length;
      const Tensor queries = head.matrix_of(q, length), douts = head.matrix_of(dout, length),
                   scores = scores_in<T>(room, part, 0, length, keys),
                   dscores = scores_in<T>(room, part, 1, length, keys);
      float* const along = delta.mutable_data_ptr<float>() + part * length;
      multiply(scores, queries, transposed(head.matrix_of(k, keys)));
      multiply(dscores, douts, transposed(head.matrix_of(v, keys)));
      kernel.row_dot(head.start_of(dout), head.start_of(out), along, length, head.size(),
                     head.width);
      kernel.softmax_dropout_backward(
          rows_of<T>(scores), rows_of<T>(dscores), all_keys.mask_of(head.row),
          static_cast<float>(scale), dropout, head.first_line(),
          log_sum.const_data_ptr<float>() + head.first_line(), along, length, keys);
      multiply(head.matrix_of(dq, length), dscores, head.matrix_of(k, keys));
      multiply(head.matrix_of(dk, keys), transposed(dscores), queries);
      multiply(head.matrix_of(dv, keys), transposed(scores), douts);
      for (std::int64_t row = keys; row < length; ++row) {
        std::fill_n(head.start_of(dk) + row * head.width, head.size(), T{});
        std::fill_n(head.start_of(dv) + row * head.width, head.size(), T{});
      }
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "attention(Tensor q, Tensor k, Tensor v, Tensor mask, int[] keys, int heads, "
               "float scale, int seed, float p, Tensor(a!) room, Tensor(b!) out, "
               "Tensor(c!) log_sum) -> ()",
               attention_cpu);
  add_operator(library,
               "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, "
               "Tensor mask, Tensor log_sum, int[] keys, int heads, float scale, int seed, "
               "float p, Tensor(a!) room, Tensor(b!) delta, Tensor(c!) dq, Tensor(d!) dk, "
               "Tensor(e!) dv) -> ()",
               attention_backward_cpu);
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
    const auto keys = attended_lengths(mask, batch, length);
    const Tensor additive = mask.defined() ? mask : at::zeros({1, length}, at::kFloat);
    call<attention_cpu>("hasten::attention", q, k, v, additive, keys, heads, scale, dropout.seed,
                        dropout.p, room_for_scores(q, keys, heads, 1), out, log_sum);
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
    const auto keys = attended_lengths(mask, batch, length);
    const Tensor additive = mask.defined() ? mask : at::zeros({1, length}, at::kFloat);
    const Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v),
                 room = room_for_scores(q, keys, heads, 2),
                 delta = at::empty({room.size(0), length}, at::kFloat);
    call<attention_backward_cpu>("hasten::attention_backward", dout, q, k, v, out, additive,
                                 log_sum, keys, heads, scale, dropout.seed, dropout.p, room, delta,
                                 dq, dk, dv);
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
