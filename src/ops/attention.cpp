#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <initializer_list>
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

std::int64_t head_size_of(const Tensor& q, const AttentionHeads& heads) {
  return q.size(2) / heads.count;
}

double scale_of(const Tensor& q, const AttentionHeads& heads) {
  return heads.scale.value_or(1 / std::sqrt(static_cast<double>(head_size_of(q, heads))));
}

// Returns the number of each row's keys up to the last that may be attended to, at least 1: padding
// after it costs nothing.
std::vector<std::int64_t> attended_lengths(const Tensor& additive, std::int64_t batch,
                                           std::int64_t keys) {
  std::vector<std::int64_t> lengths(batch, keys);
  if (!additive.defined()) return lengths;
  for (std::int64_t row = 0; row < batch; ++row) {
    const float* mask = additive.const_data_ptr<float>() + row * additive.stride(0);
    while (lengths[row] > 1 && mask[lengths[row] - 1] != 0) --lengths[row];
  }
  return lengths;
}

// A causal mask excludes the keys after a query. Blocks of this many queries, each with the keys up
// to its last query, leave out most of these keys, and are still large products.
constexpr std::int64_t kCausalBlock = 128;

std::int64_t block_rows(std::int64_t length, bool causal) {
  return causal ? std::min(length, kCausalBlock) : length;
}

// The sizes of a call: the length of each row, its number of keys up to the last that may be
// attended to, and the mask [rows or 1, longest], which excludes some of these by -infinity.
struct RowSizes {
  at::IntArrayRef lengths, keys;
  const Tensor& mask;
  std::int64_t longest;  // row of queries
  std::int64_t heads, key_heads;
  bool causal;

  std::int64_t rows() const { return std::ssize(lengths); }
  std::int64_t group() const { return heads / key_heads; }
};

// Consecutive queries of a row, and the keys that some of them may attend to.
struct Block {
  std::int64_t first, count, keys;
};

// One head of one row. The tokens of a row follow each other in x [batch, tokens, heads * size], and
// those of packed rows, too.
template <class T>
class Head {
 public:
  Head(const RowSizes& sizes, std::int64_t row, std::int64_t head, const Tensor& q, const Tensor& k)
      : sizes_(sizes),
        row_(row),
        head_(head),
        size_(q.size(2) / sizes.heads),
        is_packed_(q.size(0) == 1 && sizes.rows() > 1),
        length_(sizes.lengths[row]),
        keys_(sizes.keys[row]),
        all_keys_(is_packed_ ? length_ : k.size(1)) {
    if (is_packed_) {
      for (std::int64_t each = 0; each < row; ++each) start_ += sizes.lengths[each];
    }
  }

  std::int64_t length() const { return length_; }
  std::int64_t keys() const { return keys_; }
  std::int64_t all_keys() const { return all_keys_; }
  std::int64_t size() const { return size_; }
  const float* mask() const {
    return sizes_.mask.const_data_ptr<float>() +
           (row_ % sizes_.mask.size(0)) * sizes_.mask.stride(0);
  }
  // The index of its first query in [rows, heads, longest].
  std::int64_t first_query() const { return (row_ * sizes_.heads + head_) * sizes_.longest; }

  std::int64_t blocks() const {
    const std::int64_t rows = std::max<std::int64_t>(block_rows(length_, sizes_.causal), 1);
    return (length_ + rows - 1) / rows;
  }
  Block block(std::int64_t index) const {
    const std::int64_t rows = block_rows(length_, sizes_.causal), first = index * rows,
                       count = std::min(rows, length_ - first);
    return {first, count, keys_of(first + count - 1)};
  }
  // The keys up to the last that this query may attend to. The queries are the last of the keys.
  std::int64_t keys_of(std::int64_t query) const {
    return sizes_.causal ? std::min(keys_, all_keys_ - length_ + query + 1) : keys_;
  }

  // Returns the head's part of a token of queries, and of a token of keys or values.
  T* query(const Tensor& x, std::int64_t token) const { return at(x, token, head_); }
  T* key(const Tensor& x, std::int64_t token) const { return at(x, token, head_ / sizes_.group()); }
  // Returns the head's part of consecutive tokens as a view [count, size].
  Tensor queries(const Tensor& x, const Block& block) const {
    return view(x, query(x, block.first), block.count);
  }
  Tensor first_keys(const Tensor& x, std::int64_t count) const { return view(x, key(x, 0), count); }

 private:
  T* at(const Tensor& x, std::int64_t token, std::int64_t head) const {
    return rows_of<T>(x) + (is_packed_ ? 0 : row_) * x.stride(0) + (start_ + token) * x.stride(1) +
           head * size_;
  }
  Tensor view(const Tensor& x, T* first, std::int64_t count) const {
    return at::from_blob(first, {count, size_}, {x.stride(1), 1}, x.options());
  }

  const RowSizes& sizes_;
  std::int64_t row_, head_, size_;
  bool is_packed_;
  std::int64_t length_, keys_, all_keys_, start_ = 0;
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

// Writes the product, or adds it to what `out` holds.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, bool adds) {
  if (!adds) return multiply(out, a, b);
  Tensor written = out;
  at::cpu::addmm_out(written, written, a, b, 1, 1);
}

// Allocates the scores of one block for each thread: [parts, matrices, longest block * most keys of
// a row].
Tensor allocate_scores(const Tensor& q, at::IntArrayRef lengths, at::IntArrayRef keys,
                       std::int64_t heads, std::int64_t matrices, bool causal) {
  const auto most = [](at::IntArrayRef all) {
    return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  };
  const std::int64_t parts =
      std::clamp<std::int64_t>(std::ssize(lengths) * heads, 1, at::get_num_threads());
  return at::empty({parts, matrices, block_rows(most(lengths), causal) * most(keys)}, q.options());
}

// Returns the scores of one part and matrix as a view [queries, keys].
template <class T>
Tensor scores_in(const Tensor& score_buffer, std::int64_t part, std::int64_t matrix,
                 const Block& block) {
  T* const first =
      rows_of<T>(score_buffer) + (part * score_buffer.size(1) + matrix) * score_buffer.size(2);
  return at::from_blob(first, {block.count, block.keys}, score_buffer.options());
}

// Calls body(part, item) for every item, a head of a row. Each of n parts takes every n-th item,
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

// Calls body(first row, rows, keys) for the rows of a block that attend to the same number of keys:
// for all at once, or, with a causal mask, for each row. Then zeroes the rest of the rows in each
// matrix.
template <class T, class Body>
void for_visible(const Head<T>& head, const Block& block, bool causal,
                 std::initializer_list<T*> matrices, Body body) {
  if (!causal) return body(0, block.count, block.keys);
  for (std::int64_t row = 0; row < block.count; ++row) {
    const std::int64_t keys = head.keys_of(block.first + row);
    body(row, 1, keys);
    for (T* const matrix : matrices)
      std::fill(matrix + row * block.keys + keys, matrix + (row + 1) * block.keys, T{});
  }
}

// q, out [batch, length, heads * size]; k, v [batch, keys, key heads * size]; log_sum [rows, heads,
// longest]. Tokens may be any number of elements apart.
void attention_cpu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                   at::IntArrayRef lengths, at::IntArrayRef key_counts, std::int64_t heads,
                   std::int64_t key_heads, double scale, bool causal, std::int64_t seed, double p,
                   const Tensor& score_buffer, const Tensor& out, const Tensor& log_sum) {
  const Dropout dropout = DropoutState{seed, p}.kernel_options();
  const RowSizes sizes{lengths, key_counts, mask, log_sum.size(2), heads, key_heads, causal};
  float* const log_sums = log_sum.mutable_data_ptr<float>();
  dispatch_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    for_heads(score_buffer, sizes.rows() * heads, [&](std::int64_t part, std::int64_t item) {
      const Head<T> head(sizes, item / heads, item % heads, q, k);
      for (std::int64_t index = 0; index < head.blocks(); ++index) {
        const Block block = head.block(index);
        const Tensor scores = scores_in<T>(score_buffer, part, 0, block);
        T* const score = rows_of<T>(scores);
        multiply(scores, head.queries(q, block), transposed(head.first_keys(k, block.keys)));
        for_visible<T>(head, block, causal, {score},
                       [&](std::int64_t row, std::int64_t count, std::int64_t keys) {
                         const std::int64_t query = head.first_query() + block.first + row;
                         kernel.softmax_dropout(score + row * block.keys, head.mask(),
                                                static_cast<float>(scale), dropout, query,
                                                log_sums + query, count, keys);
                       });
        multiply(head.queries(out, block), scores, head.first_keys(v, block.keys));
      }
    });
  });
}

// The gradients of a head with one block, or of several heads of q that share a head of k and v, or
// with several blocks. Then the first product writes the gradients of k and v, and the others add to
// them. The first is that of the last block, which has the most keys. delta is working memory for
// the sums of dout * out.
void attention_backward_cpu(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& out, const Tensor& mask, const Tensor& log_sum,
                            at::IntArrayRef lengths, at::IntArrayRef key_counts, std::int64_t heads,
                            std::int64_t key_heads, double scale, bool causal, std::int64_t seed,
                            double p, const Tensor& score_buffer, const Tensor& delta,
                            const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const Dropout dropout = DropoutState{seed, p}.kernel_options();
  const RowSizes sizes{lengths, key_counts, mask, log_sum.size(2), heads, key_heads, causal};
  const float* const log_sums = log_sum.const_data_ptr<float>();
  dispatch_type(q, [&]<class T>(const RowKernels<T>& kernel, T*) {
    const auto add_head = [&](std::int64_t part, const Head<T>& head, bool adds) {
      float* const deltas = delta.mutable_data_ptr<float>() + part * delta.size(1);
      kernel.row_dot(head.query(dout, 0), head.query(out, 0), deltas, head.length(), head.size(),
                     dout.stride(1));
      for (std::int64_t index = head.blocks() - 1; index >= 0; --index) {
        const Block block = head.block(index);
        const Tensor queries = head.queries(q, block), douts = head.queries(dout, block),
                     keys = head.first_keys(k, block.keys),
                     scores = scores_in<T>(score_buffer, part, 0, block),
                     dscores = scores_in<T>(score_buffer, part, 1, block);
        T *const score = rows_of<T>(scores), *const dscore = rows_of<T>(dscores);
        multiply(scores, queries, transposed(keys));
        multiply(dscores, douts, transposed(head.first_keys(v, block.keys)));
        for_visible<T>(head, block, causal, {score, dscore},
                       [&](std::int64_t row, std::int64_t count, std::int64_t visible) {
                         const std::int64_t query = head.first_query() + block.first + row;
                         kernel.softmax_dropout_backward(
                             score + row * block.keys, dscore + row * block.keys, head.mask(),
                             static_cast<float>(scale), dropout, query, log_sums + query,
                             deltas + block.first + row, count, visible);
                       });
        multiply(head.queries(dq, block), dscores, keys);
        multiply(head.first_keys(dk, block.keys), transposed(dscores), queries, adds);
        multiply(head.first_keys(dv, block.keys), transposed(scores), douts, adds);
        adds = true;
      }
    };
    for_heads(score_buffer, sizes.rows() * key_heads, [&](std::int64_t part, std::int64_t item) {
      const std::int64_t row = item / key_heads, first = item % key_heads * sizes.group();
      for (std::int64_t i = 0; i < sizes.group(); ++i)
        add_head(part, Head<T>(sizes, row, first + i, q, k), /*adds=*/i > 0);
      const Head<T> head(sizes, row, first, q, k);
      const std::int64_t written = head.blocks() > 0 ? head.keys() : 0;
      for (std::int64_t token = written; token < head.all_keys(); ++token) {
        std::fill_n(head.key(dk, token), head.size(), T{});
        std::fill_n(head.key(dv, token), head.size(), T{});
      }
    });
  });
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(
      library,
      "attention(Tensor q, Tensor k, Tensor v, Tensor mask, int[] lengths, int[] keys, int heads, "
      "int key_heads, float scale, bool causal, int seed, float p, Tensor(a!) score_buffer, "
      "Tensor(b!) out, Tensor(c!) log_sum) -> ()",
      attention_cpu);
  add_operator(
      library,
      "attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, "
      "Tensor mask, Tensor log_sum, int[] lengths, int[] keys, int heads, int key_heads, "
      "float scale, bool causal, int seed, float p, Tensor(a!) score_buffer, Tensor(b!) delta, "
      "Tensor(c!) dq, Tensor(d!) dk, Tensor(e!) dv) -> ()",
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

// Returns what a mask adds to scores [batch, heads, length, keys], in a shape that broadcasts to
// them; undefined if it masks nothing.
Tensor bias_of(const Tensor& mask, bool causal, const Tensor& q, const Tensor& k,
               at::ScalarType type) {
  const Tensor bias =
      mask.defined() ? mask.to(type).view({mask.size(0), 1, 1, mask.size(1)}) : Tensor();
  if (!causal) return bias;
  const Tensor future = at::full({1, 1, q.size(1), k.size(1)},
                                 -std::numeric_limits<double>::infinity(), q.options().dtype(type))
                            .triu(k.size(1) - q.size(1) + 1);
  return bias.defined() ? bias + future : future;
}

// Returns the softmax over the keys that the bias admits. A row without any gives zeros, as in the
// kernels, where the softmax of the sum would give NaN. at::_safe_softmax has no kernel for the
// Meta device, which a dry run needs.
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

// The arguments of a call that are not tensors. `packed` has the lengths of packed rows, and is empty
// if each row of the batch is one.
struct AttentionCall {
  std::vector<std::int64_t> packed;
  bool causal;
  AttentionHeads heads;
  DropoutState dropout;
};

// Computes the gradients of the whole batch at once with LibTorch's operators, in float.
variable_list differentiable_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
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
  const Tensor bias = bias_of(mask, call.causal, q, k, at::kFloat);
  const Tensor p = bias.defined() ? masked_softmax(scores, bias) : at::softmax(scores, -1);
  const Tensor kept_p = apply_dropout(p, call.dropout),
               dp = apply_dropout(at::matmul(douts, values.transpose(2, 3)), call.dropout);
  const Tensor dscores = p * (dp - (p * dp).sum(-1, /*keepdim=*/true)) * scale;
  return {merge(at::matmul(dscores, keys)),
          merge(sum_of_groups(at::matmul(dscores.transpose(2, 3), queries), heads)),
          merge(sum_of_groups(at::matmul(kept_p.transpose(2, 3), douts), heads)), Tensor(),
          Tensor()};
}

variable_list differentiable_packed_backward(const Tensor& dout, const Tensor& q, const Tensor& k,
                                             const Tensor& v, const AttentionCall& call) {
  const auto pad = [&](const Tensor& x) { return padded(x, call.packed); };
  const KeyMask mask(mask_of(call.packed));
  variable_list gradients =
      differentiable_backward(pad(dout), pad(q), pad(k), pad(v), mask.additive(), call);
  for (std::size_t i = 0; i < 3; ++i) gradients[i] = without_padding(gradients[i], call.packed);
  return gradients;
}

// The length of each row, the number of its keys, and the mask of the keys.
struct Layout {
  std::vector<std::int64_t> lengths, keys;
  Tensor additive;       // Shape [rows or 1, most keys].
  std::int64_t longest;  // The most queries of a row.
};

Layout layout_of(const Tensor& q, const Tensor& k, const Tensor& mask,
                 const std::vector<std::int64_t>& packed) {
  if (!packed.empty()) {
    const std::int64_t longest = *std::max_element(packed.begin(), packed.end());
    return {packed, packed, at::zeros({1, longest}, at::kFloat), longest};
  }
  const std::int64_t batch = q.size(0), length = q.size(1), keys = k.size(1);
  return {std::vector<std::int64_t>(batch, length), attended_lengths(mask, batch, keys),
          mask.defined() ? mask : at::zeros({1, keys}, at::kFloat), length};
}

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
    const WithoutAutocast without_autocast;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor mask = masked.value_or(Tensor());
    const Layout layout = layout_of(q, k, mask, call.packed);
    const std::int64_t heads = call.heads.count;
    const double scale = scale_of(q, call.heads);
    const Tensor out = at::empty(q.sizes(), q.options()),
                 log_sum =
                     at::empty({std::ssize(layout.lengths), heads, layout.longest}, at::kFloat);
    call_operator<attention_cpu>(
        "hasten::attention", q, k, v, layout.additive, layout.lengths, layout.keys, heads,
        call.heads.key_count, scale, call.causal, call.dropout.seed, call.dropout.p,
        allocate_scores(q, layout.lengths, layout.keys, heads, 1, call.causal), out, log_sum);
    context->save_for_backward({q, k, v, mask, out, log_sum});
    save(context, call, scale);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const WithoutAutocast without_autocast;
    const auto kept = context->get_saved_variables();
    const Tensor &q = kept[0], &k = kept[1], &v = kept[2], &mask = kept[3], &out = kept[4],
                 &log_sum = kept[5];
    const AttentionCall call = saved_call(context);
    if (needs_second_derivative()) {
      return call.packed.empty() ? differentiable_backward(grads[0], q, k, v, mask, call)
                                 : differentiable_packed_backward(grads[0], q, k, v, call);
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor dout = grads[0].contiguous();
    const Layout layout = layout_of(q, k, mask, call.packed);
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const Tensor dq = like(q), dk = like(k), dv = like(v),
                 score_buffer = allocate_scores(q, layout.lengths, layout.keys, call.heads.count, 2,
                                                call.causal),
                 delta = at::empty({score_buffer.size(0), layout.longest}, at::kFloat);
    call_operator<attention_backward_cpu>(
        "hasten::attention_backward", dout, q, k, v, out, layout.additive, log_sum, layout.lengths,
        layout.keys, call.heads.count, call.heads.key_count, *call.heads.scale, call.causal,
        call.dropout.seed, call.dropout.p, score_buffer, delta, dq, dk, dv);
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

// LibTorch's attention. Its fused kernel has no second derivative. Second derivatives are checked
// in double, so double takes the form that has one.
Tensor reference_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                           const AttentionHeads& heads, double p) {
  const Tensor queries = heads_first(q, heads.count), keys = key_heads_first(k, heads),
               values = key_heads_first(v, heads);
  const bool is_double = q.device().is_cpu() && q.scalar_type() == at::kDouble;
  // LibTorch's causal mask is for as many queries as keys, and excludes another mask.
  const bool causal =
      mask.is_causal() && !is_double && !mask.additive().defined() && q.size(1) == k.size(1);
  const auto bias = optional_if_defined(
      bias_of(mask.additive(), mask.is_causal() && !causal, q, k, q.scalar_type()));
  if (is_double) {
    return heads_last(std::get<0>(at::_scaled_dot_product_attention_math(
        queries, keys, values, bias, p, /*is_causal=*/false, /*dropout_mask=*/{}, heads.scale)));
  }
  return heads_last(
      at::scaled_dot_product_attention(queries, keys, values, bias, p, causal, heads.scale));
}

// Reading a mask would stall a GPU, so there the mask is always applied.
bool attends_everywhere(const Tensor& attention_mask) {
  if (!attention_mask.device().is_cpu()) return false;
  const Tensor mask = attention_mask.to(at::kLong).contiguous();
  const std::int64_t* first = mask.const_data_ptr<std::int64_t>();
  return std::all_of(first, first + mask.numel(), [](std::int64_t each) { return each != 0; });
}

void check(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
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

// Returns x in a form whose tokens are contiguous, a part of larger rows perhaps, as the kernels
// take it.
Tensor with_whole_tokens(const Tensor& x) {
  return x.stride(2) == 1 && x.stride(1) >= x.size(2) ? x : x.contiguous();
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
    const float* here = first + row * mask.stride(0);
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

KeyMask KeyMask::causal() const {
  KeyMask mask = *this;
  mask.is_causal_ = true;
  return mask;
}

KeyMask KeyMask::first_keys(std::int64_t count) const {
  TORCH_CHECK(lengths_.empty(), "KeyMask::first_keys: got a mask of packed rows");
  KeyMask mask = *this;
  if (additive_.defined()) mask.additive_ = additive_.narrow(1, 0, count);
  return mask;
}

KeyMask KeyMask::repeated(std::int64_t times) const {
  TORCH_CHECK(lengths_.empty(), "KeyMask::repeated: got a mask of packed rows");
  KeyMask mask = *this;
  if (additive_.defined()) mask.additive_ = additive_.repeat_interleave(times, 0);
  return mask;
}

namespace {

// Pads packed rows for a function that needs rows of one length.
template <class Attend>
Tensor attend_padded(Attend attend, const Tensor& q, const Tensor& k, const Tensor& v,
                     const KeyMask& mask, const AttentionHeads& heads, double p, bool training) {
  const auto pad = [&](const Tensor& x) { return padded(x, mask.lengths()); };
  const KeyMask tokens(mask_of(mask.lengths()).to(q.device()));
  return without_padding(attend(pad(q), pad(k), pad(v), mask.is_causal() ? tokens.causal() : tokens,
                                heads, p, training),
                         mask.lengths());
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 const AttentionHeads& heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  const auto cast = [](const Tensor& x) { return x.device().is_cpu() ? x.to(product_type(x)) : x; };
  const Tensor queries = cast(q), keys = cast(k), values = cast(v), &additive = mask.additive();
  const bool fits = fits_kernels(queries, keys, values, additive);
  if (!fits && !mask.lengths().empty())
    return attend_padded(attention, queries, keys, values, mask, heads, p, training);
  if (!fits) return reference_attention(queries, keys, values, mask, heads, training ? p : 0);
  return Attention::apply(
      with_whole_tokens(queries), with_whole_tokens(keys), with_whole_tokens(values),
      optional_if_defined(additive),
      AttentionCall{mask.lengths(), mask.is_causal(), heads, draw_dropout(p, training)});
}

Tensor eager_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       const AttentionHeads& heads, double p, bool training) {
  check(q, k, v, mask, heads, p);
  if (!mask.lengths().empty())
    return attend_padded(eager_attention, q, k, v, mask, heads, p, training);
  // The assignment frees the unscaled products.
  Tensor scores =
      at::matmul(heads_first(q, heads.count), key_heads_first(k, heads).transpose(2, 3));
  scores = heads.scale ? scores * *heads.scale
                       : scores / std::sqrt(static_cast<double>(head_size_of(q, heads)));
  const Tensor bias = bias_of(mask.additive(), mask.is_causal(), q, k, scores.scalar_type());
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
