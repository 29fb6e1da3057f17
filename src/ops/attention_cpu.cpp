#include "ops/attention_cpu.h"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "ops/cpu.h"

namespace hasten::ops {
namespace {

// Returns for each row the number of keys up to the last one that may be attended to, at least 1.
// Padding after that key costs nothing.
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

// A causal mask excludes the keys after a query. Blocks of this size, each with the keys up to its
// last query, leave out most of these keys, and their products are still large.
constexpr std::int64_t kCausalBlock = 128;

std::int64_t block_rows(std::int64_t length, bool causal) {
  return causal ? std::min(length, kCausalBlock) : length;
}

// Returns for each row the sum of the lengths of the rows before it.
std::vector<std::int64_t> starts_of(at::IntArrayRef lengths) {
  std::vector<std::int64_t> starts(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), std::int64_t{0});
  return starts;
}

// The sizes of a call: the length of each row, its number of keys up to the last that may be
// attended to, and the mask [rows or 1, longest], which excludes some of these by -infinity.
struct RowSizes {
  at::IntArrayRef lengths, keys;
  const Tensor& mask;
  std::int64_t longest;  // the most queries of a row
  std::int64_t heads, key_heads;
  bool causal;
  // The first token of each row, if rows are packed.
  std::vector<std::int64_t> starts = starts_of(lengths);

  std::int64_t rows() const { return std::ssize(lengths); }
  std::int64_t group() const { return heads / key_heads; }
};

// Consecutive queries of a row, and the keys that some of them may attend to.
struct Block {
  std::int64_t first, count, keys;
};

// One head of one row. The tokens of a row follow each other in x [batch, tokens, heads * size],
// also in packed rows.
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
        all_keys_(is_packed_ ? length_ : k.size(1)),
        start_(is_packed_ ? sizes.starts[static_cast<std::size_t>(row)] : 0) {}

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
  // Returns the number of keys that this query may attend to. The queries belong to the last keys.
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
  std::int64_t length_, keys_, all_keys_, start_;
};

// Returns a transposed view without the dispatcher.
Tensor transposed(const Tensor& x) {
  return at::from_blob(x.data_ptr(), {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)},
                       x.options());
}

// Computes LibTorch's product without its dispatcher. In a parallel region each thread computes its
// own product, which is faster than if all threads share one.
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
  const auto maximum = [](at::IntArrayRef all) {
    return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  };
  const std::int64_t parts =
      std::clamp<std::int64_t>(std::ssize(lengths) * heads, 1, at::get_num_threads());
  return at::empty({parts, matrices, block_rows(maximum(lengths), causal) * maximum(keys)},
                   q.options());
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

// Computes the gradients. The first product of a head of k and v writes its gradients; the products
// of further blocks, and of further heads of q that share it, add to them. The last block comes
// first, because it has the most keys. `delta` is working memory for the sums of dout * out.
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

}  // namespace

AttentionRows attention_rows(const Tensor& q, const Tensor& k, const Tensor& mask,
                             const std::vector<std::int64_t>& packed) {
  if (!packed.empty()) {
    const std::int64_t longest = *std::max_element(packed.begin(), packed.end());
    return {packed, packed, at::zeros({1, longest}, at::kFloat), longest};
  }
  const std::int64_t batch = q.size(0), length = q.size(1), keys = k.size(1);
  return {std::vector<std::int64_t>(batch, length), attended_lengths(mask, batch, keys),
          mask.defined() ? mask : at::zeros({1, keys}, at::kFloat), length};
}

void run_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionRows& rows,
                   const AttentionCall& call, double scale, const Tensor& out,
                   const Tensor& log_sum) {
  const std::int64_t heads = call.heads.count;
  call_operator<attention_cpu>(
      "hasten::attention", q, k, v, rows.additive, rows.lengths, rows.keys, heads,
      call.heads.key_count, scale, call.causal, call.dropout.seed, call.dropout.p,
      allocate_scores(q, rows.lengths, rows.keys, heads, 1, call.causal), out, log_sum);
}

void run_attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& out, const AttentionRows& rows, const Tensor& log_sum,
                            const AttentionCall& call, double scale, const Tensor& dq,
                            const Tensor& dk, const Tensor& dv) {
  const std::int64_t heads = call.heads.count;
  const Tensor scores = allocate_scores(q, rows.lengths, rows.keys, heads, 2, call.causal),
               delta = at::empty({scores.size(0), rows.longest}, at::kFloat);
  call_operator<attention_backward_cpu>("hasten::attention_backward", dout, q, k, v, out,
                                        rows.additive, log_sum, rows.lengths, rows.keys, heads,
                                        call.heads.key_count, scale, call.causal, call.dropout.seed,
                                        call.dropout.p, scores, delta, dq, dk, dv);
}

}  // namespace hasten::ops
