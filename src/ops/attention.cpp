#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/dropout_state.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t head_size_of(const Tensor& q, std::int64_t heads) { return q.size(2) / heads; }

double scale_of(const Tensor& q, std::int64_t heads) {
  return 1 / std::sqrt(static_cast<double>(head_size_of(q, heads)));
}

// Returns the number of each row's keys up to the last that may be attended to, at least 1: padding
// after it costs nothing.
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

// The rows of a batch, whose tokens follow each other in x [..., tokens, heads * size], and their
// keys up to the last that may be attended to. Of these, mask [rows or 1, longest] excludes some by
// -infinity.
class BatchRows {
 public:
  BatchRows(at::IntArrayRef lengths, at::IntArrayRef keys, const Tensor& mask, std::int64_t heads)
      : lengths_(lengths), keys_(keys), mask_(mask), heads_(heads) {
    std::int64_t start = 0;
    for (const std::int64_t length : lengths) {
      starts_.push_back(start);
      start += length;
    }
  }

  std::int64_t heads() const { return heads_; }
  std::int64_t all_heads() const { return std::ssize(starts_) * heads_; }
  std::int64_t start(std::int64_t row) const { return starts_[row]; }
  std::int64_t length(std::int64_t row) const { return lengths_[row]; }
  std::int64_t keys(std::int64_t row) const { return keys_[row]; }
  std::int64_t longest() const { return mask_.size(1); }
  const float* mask(std::int64_t row) const {
    return mask_.const_data_ptr<float>() + (row % mask_.size(0)) * mask_.size(1);
  }

 private:
  at::IntArrayRef lengths_, keys_;
  const Tensor& mask_;
  std::int64_t heads_;
  std::vector<std::int64_t> starts_;
};

// One head of one row; `item` is row * heads + head.
template <class T>
struct Head {
  Head(const BatchRows& rows, std::int64_t item, std::int64_t of_all_heads) {
    const std::int64_t row = item / rows.heads();
    length = rows.length(row);
    keys = rows.keys(row);
    mask = rows.mask(row);
    first_query = item * rows.longest();
    width = of_all_heads;
    size = width / rows.heads();
    offset = rows.start(row) * width + item % rows.heads() * size;
  }

  T* start_of(const Tensor& x) const { return rows_of<T>(x) + offset; }
  // Returns the head's part of the first tokens of x as a view [tokens, size].
  Tensor matrix_of(const Tensor& x, std::int64_t tokens) const {
    return at::from_blob(start_of(x), {tokens, size}, {width, 1}, x.options());
  }

  std::int64_t length, keys;
  const float* mask;
  std::int64_t first_query;  // The index of its first query in [rows, heads, longest].
  std::int64_t size, width, offset;
};

// Returns a transposed view without the dispatcher.
Tensor transposed(const Tensor& x) {
  return at::from_blob(x.data_ptr(), {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)},
                       x.options());
}

// Computes LibTorch's product without its dispatcher. In a parallel region each thread computes its
// own product, which takes less time than all of them computing one.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b) {
  Tensor written = out;
  at::cpu::mm_out(written, a, b);
}

// Allocates the scores of one head for each thread: [parts, matrices, longest row * most keys of a
// row].
Tensor allocate_scores(const Tensor& q, at::IntArrayRef lengths, at::IntArrayRef keys,
                       std::int64_t heads, std::int64_t matrices) {
  const auto most = [](at::IntArrayRef all) {
    return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  };
  const std::int64_t parts =
      std::clamp<std::int64_t>(std::ssize(lengths) * heads, 1, at::get_num_threads());
  return at::empty({parts, matrices, most(lengths) * most(keys)}, q.options());
}

// Returns the scores of one part and matrix as a view [length, keys].
template <class T>
Tensor scores_in(const Tensor& score_buffer, std::int64_t part, std::int64_t matrix,
                 std::int64_t length, std::int64_t keys) {
  T* const first =
      rows_of<T>(score_buffer) + (part * score_buffer.size(1) + matrix) * score_buffer.size(2);
  return at::from_blob(first, {length, keys}, score_buffer.options());
}

// Calls body(part, item) for every head of every row. Each of n parts takes every n-th item,
// because rows with few keys are adjacent in data sorted by length.
template <class Body>
void for_heads(const Tensor& score_buffer, std::int64_t items, Body body) {
  const std::int64_t parts = score_buffer.size(0);
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      for (std::int64_t item = part; item < items; item += parts) body(part, item);
    }
  });
}

// q, k, v, out [batch, length, heads * size]; log_sum [rows, heads, longest].
void attention_cpu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                   at::IntArrayRef lengths, at::IntArrayRef key_counts, std::int64_t heads,
                   double scale, std::int64_t seed, double p, const Tensor& score_buffer,
                   const Tensor& out, const Tensor& log_sum) {
  const Dropout dropout = DropoutState{seed, p}.kernel_options();
  const BatchRows rows(lengths, key_counts, mask, heads);
  dispatch_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_heads(score_buffer, rows.all_heads(), [&](std::int64_t part, std::int64_t item) {
      const Head<T> head(rows, item, q.size(2));
      const Tensor scores = scores_in<T>(score_buffer, part, 0, head.length, head.keys);
      multiply(scores, head.matrix_of(q, head.length), transposed(head.matrix_of(k, head.keys)));
      kernel.softmax_dropout(rows_of<T>(scores), head.mask, static_cast<float>(scale), dropout,
                             head.first_query, log_sum.mutable_data_ptr<float>() + head.first_query,
                             head.length, head.keys);
      multiply(head.matrix_of(out, head.length), scores, head.matrix_of(v, head.keys));
    });
  });
}

// delta [parts, longest] is working memory for the sums of dout * out.
void attention_backward_cpu(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& out, const Tensor& mask, const Tensor& log_sum,
                            at::IntArrayRef lengths, at::IntArrayRef key_counts, std::int64_t heads,
                            double scale, std::int64_t seed, double p, const Tensor& score_buffer,
                            const Tensor& delta, const Tensor& dq, const Tensor& dk,
                            const Tensor& dv) {
  const Dropout dropout = DropoutState{seed, p}.kernel_options();
  const BatchRows rows(lengths, key_counts, mask, heads);
  dispatch_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_heads(score_buffer, rows.all_heads(), [&](std::int64_t part, std::int64_t item) {
      const Head<T> head(rows, item, q.size(2));
      const std::int64_t length = head.length, keys = head.keys;
      const Tensor queries = head.matrix_of(q, length), douts = head.matrix_of(dout, length),
                   scores = scores_in<T>(score_buffer, part, 0, length, keys),
                   dscores = scores_in<T>(score_buffer, part, 1, length, keys);
      float* const delta_rows = delta.mutable_data_ptr<float>() + part * delta.size(1);
      multiply(scores, queries, transposed(head.matrix_of(k, keys)));
      multiply(dscores, douts, transposed(head.matrix_of(v, keys)));
      kernel.row_dot(head.start_of(dout), head.start_of(out), delta_rows, length, head.size,
                     head.width);
      kernel.softmax_dropout_backward(rows_of<T>(scores), rows_of<T>(dscores), head.mask,
                                      static_cast<float>(scale), dropout, head.first_query,
                                      log_sum.const_data_ptr<float>() + head.first_query,
                                      delta_rows, length, keys);
      multiply(head.matrix_of(dq, length), dscores, head.matrix_of(k, keys));
      multiply(head.matrix_of(dk, keys), transposed(dscores), queries);
      multiply(head.matrix_of(dv, keys), transposed(scores), douts);
      for (std::int64_t row = keys; row < length; ++row) {
        std::fill_n(head.start_of(dk) + row * head.width, head.size, T{});
        std::fill_n(head.start_of(dv) + row * head.width, head.size, T{});
      }
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(
      library,
      "attention(Tensor q, Tensor k, Tensor v, Tensor mask, int[] lengths, int[] keys, int heads, "
      "float scale, int seed, float p, Tensor(a!) score_buffer, Tensor(b!) out, "
      "Tensor(c!) log_sum) -> ()",
      attention_cpu);
  add_operator(
      library,
      "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, "
      "Tensor mask, Tensor log_sum, int[] lengths, int[] keys, int heads, float scale, int seed, "
      "float p, Tensor(a!) score_buffer, Tensor(b!) delta, Tensor(c!) dq, Tensor(d!) dk, "
      "Tensor(e!) dv) -> ()",
      attention_backward_cpu);
}

// Returns x [batch, length, heads * size] as [batch, heads, length, size].
Tensor heads_first(const Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}
// The inverse of heads_first.
Tensor heads_last(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}
// Returns the mask in a shape that broadcasts to scores [batch, heads, length, keys].
Tensor bias_of(const Tensor& mask, at::ScalarType type) {
  return mask.to(type).view({mask.size(0), 1, 1, mask.size(1)});
}

// Returns the softmax over the keys that the mask admits. A row without any gives zeros, as in the
// kernels, where the softmax of the sum would give NaN. at::_safe_softmax has no kernel for the
// Meta device, which a dry run needs.
Tensor masked_softmax(const Tensor& scores, const Tensor& mask) {
  const Tensor has_keys = mask.eq(0).any(1, /*keepdim=*/true);
  const Tensor bias = bias_of(mask.masked_fill(has_keys.logical_not(), 0), scores.scalar_type());
  return at::softmax(scores + bias, -1) * bias_of(has_keys, scores.scalar_type());
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
variable_list differentiable_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                      const Tensor& v, const Tensor& mask, std::int64_t heads,
                                      const DropoutState& dropout) {
  const auto split = [&](const Tensor& x) { return heads_first(x.to(at::kFloat), heads); };
  const auto merge = [&](const Tensor& x) { return heads_last(x).to(q.scalar_type()); };
  const Tensor queries = split(q), keys = split(k), values = split(v), douts = split(dout);
  const double scale = scale_of(q, heads);
  const Tensor scores = at::matmul(queries, keys.transpose(2, 3)) * scale;
  const Tensor p = mask.defined() ? masked_softmax(scores, mask) : at::softmax(scores, -1);
  const Tensor kept_p = apply_dropout(p, dropout),
               dp = apply_dropout(at::matmul(douts, values.transpose(2, 3)), dropout);
  const Tensor dscores = p * (dp - (p * dp).sum(-1, /*keepdim=*/true)) * scale;
  return {merge(at::matmul(dscores, keys)),
          merge(at::matmul(dscores.transpose(2, 3), queries)),
          merge(at::matmul(kept_p.transpose(2, 3), douts)),
          Tensor(),
          Tensor(),
          Tensor(),
          Tensor()};
}

variable_list differentiable_packed_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                             const Tensor& v, at::IntArrayRef lengths,
                                             std::int64_t heads, const DropoutState& dropout) {
  const auto pad = [&](const Tensor& x) { return padded(x, lengths); };
  const KeyMask mask(mask_of(lengths));
  variable_list gradients =
      differentiable_backward(pad(dout), pad(q), pad(k), pad(v), mask.additive(), heads, dropout);
  for (std::size_t i = 0; i < 3; ++i) gradients[i] = without_padding(gradients[i], lengths);
  return gradients;
}

// The length of each row, the number of its keys, and the mask of the keys.
struct Layout {
  std::vector<std::int64_t> lengths, keys;
  Tensor additive;  // Shape [rows or 1, longest].
};

Layout layout_of(const Tensor& q, const Tensor& mask, const std::vector<std::int64_t>& packed) {
  if (!packed.empty()) {
    const std::int64_t longest = *std::max_element(packed.begin(), packed.end());
    return {packed, packed, at::zeros({1, longest}, at::kFloat)};
  }
  const std::int64_t batch = q.size(0), length = q.size(1);
  return {std::vector<std::int64_t>(batch, length), attended_lengths(mask, batch, length),
          mask.defined() ? mask : at::zeros({1, length}, at::kFloat)};
}

// `packed` has the lengths of packed rows, and is empty if each row of the batch is one.
struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& masked,
                        const std::vector<std::int64_t>& packed, std::int64_t heads,
                        const DropoutState& dropout) {
    const WithoutAutocast without_autocast;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor mask = masked.value_or(Tensor());
    const Layout layout = layout_of(q, mask, packed);
    const Tensor out = at::empty_like(q),
                 log_sum = at::empty({std::ssize(layout.lengths), heads, layout.additive.size(1)},
                                     at::kFloat);
    call_operator<attention_cpu>("hasten::attention", q, k, v, layout.additive, layout.lengths,
                                 layout.keys, heads, scale_of(q, heads), dropout.seed, dropout.p,
                                 allocate_scores(q, layout.lengths, layout.keys, heads, 1), out,
                                 log_sum);
    context->save_for_backward({q, k, v, mask, out, log_sum});
    context->saved_data["heads"] = heads;
    context->saved_data["packed"] = packed;
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
    const std::vector<std::int64_t> packed = context->saved_data["packed"].toIntVector();
    if (needs_second_derivative()) {
      return packed.empty()
                 ? differentiable_backward(grads[0], q, k, v, mask, heads, dropout)
                 : differentiable_packed_backward(grads[0], q, k, v, packed, heads, dropout);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor dout = grads[0].contiguous();
    const Layout layout = layout_of(q, mask, packed);
    const Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v),
                 score_buffer = allocate_scores(q, layout.lengths, layout.keys, heads, 2),
                 delta = at::empty({score_buffer.size(0), layout.additive.size(1)}, at::kFloat);
    call_operator<attention_backward_cpu>("hasten::attention_backward", dout, q, k, v, out,
                                          layout.additive, log_sum, layout.lengths, layout.keys,
                                          heads, scale_of(q, heads), dropout.seed, dropout.p,
                                          score_buffer, delta, dq, dk, dv);
    return {dq, dk, dv, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// LibTorch's attention. Its fused kernel has no second derivative. Second derivatives are checked
// in double, so double takes the form that has one.
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

// Reading a mask would stall a GPU, so there the mask is always applied.
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
  const auto& packed = mask.lengths();
  TORCH_CHECK(packed.empty() || (q.size(0) == 1 && std::accumulate(packed.begin(), packed.end(),
                                                                   std::int64_t{0}) == q.size(1)),
              "attention: got packed rows of ", at::IntArrayRef(packed), " tokens for q ",
              q.sizes());
  TORCH_CHECK(!mask.additive().defined() || mask.additive().sizes() == q.sizes().slice(0, 2),
              "attention: got a mask of ", mask.additive().sizes(), " for q ", q.sizes());
  TORCH_CHECK(p >= 0 && p <= 1, "attention: got probability ", p, ", expected [0, 1]");
}

bool fits_kernels(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  return is_kernel_input(q) && is_kernel_input(k) && is_kernel_input(v) &&
         k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() &&
         (!mask.defined() || is_kernel_parameter(mask));
}

// Returns false unless the mask is on the CPU, because reading it elsewhere would have to wait.
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

KeyMask KeyMask::packed(std::vector<std::int64_t> lengths) {
  TORCH_CHECK(!lengths.empty() && *std::min_element(lengths.begin(), lengths.end()) >= 0,
              "KeyMask::packed: got lengths ", at::IntArrayRef(lengths),
              ", expected one or more, none of them negative");
  KeyMask mask{Tensor()};
  mask.lengths_ = std::move(lengths);
  return mask;
}

namespace {

// Pads packed rows for a function that needs rows of one length.
template <class Attend>
Tensor attend_padded(Attend attend, const Tensor& q, const Tensor& k, const Tensor& v,
                     const KeyMask& mask, std::int64_t heads, double p, bool training) {
  const auto pad = [&](const Tensor& x) { return padded(x, mask.lengths()); };
  const KeyMask tokens(mask_of(mask.lengths()).to(q.device()));
  return without_padding(attend(pad(q), pad(k), pad(v), tokens, heads, p, training),
                         mask.lengths());
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 std::int64_t heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  const auto cast = [](const Tensor& x) { return x.device().is_cpu() ? x.to(product_type(x)) : x; };
  const Tensor queries = cast(q), keys = cast(k), values = cast(v), &additive = mask.additive();
  const bool fits = fits_kernels(queries, keys, values, additive);
  if (!fits && !mask.lengths().empty())
    return attend_padded(attention, queries, keys, values, mask, heads, p, training);
  if (!fits) return reference_attention(queries, keys, values, additive, heads, training ? p : 0);
  return Attention::apply(queries.contiguous(), keys.contiguous(), values.contiguous(),
                          optional_if_defined(additive), mask.lengths(), heads,
                          draw_dropout(p, training));
}

Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       std::int64_t heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  if (!mask.lengths().empty())
    return attend_padded(eager_attention, q, k, v, mask, heads, p, training);
  const auto size = static_cast<double>(head_size_of(q, heads));
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
