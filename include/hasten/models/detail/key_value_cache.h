// File: hasten/models/detail/key_value_cache.h
// Stores the keys and values of the tokens that a decoder has read, so that a new token takes time
// in proportion to the number of tokens before it, and the whole text is not computed again.
//
//   KeyValueCache cache({.layers = 12, .width = 768}, {.rows = 4, .capacity = 1024});
//   cache.set_prompt(attention_mask);                    // [4, 10], padded at the left
//   // A model does this in each layer, for x [4, tokens, 768]:
//   auto [all_keys, all_values] = cache.append(layer, keys, values);
//   x = ops::attention(queries, all_keys, all_values, cache.mask(tokens), heads, 0, false);
//   // After the last layer:
//   cache.advance(tokens);
//
// Memory: two tensors [rows * copies, capacity, width] for each layer, with the type and on the
// device of the first keys. They are allocated at the first append() of a layer and never grow.
//
// Copies: with `copies` above 1, the cache reads the prompts once, and expand() then makes each of
// them the beginning of `copies` rows, such as the beams of a search. copy_row() copies only the
// tokens in which two rows of a prompt differ.
//
// Throws UsageError "models.cache" for more tokens than the capacity and for keys of the wrong
// shape. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/ops/ops.h"

namespace hasten {

// The number of layers of a model, and the size of a token's keys in each layer: number of key
// heads * head size.
struct CacheShape {
  std::int64_t layers = 0, width = 0;
};

class HASTEN_API KeyValueCache {
 public:
  struct Size {
    std::int64_t rows = 1;      // prompts
    std::int64_t capacity = 0;  // tokens of a row
    std::int64_t copies = 1;    // rows of each prompt after expand()
  };
  KeyValueCache(const CacheShape& shape, const Size& size);

  // Sets which tokens of the prompts count: attention_mask [rows, length], undefined if all count.
  // Call it while the cache is empty.
  void set_prompt(const at::Tensor& attention_mask);

  // The current number of rows: the prompts, or all copies after expand().
  std::int64_t rows() const { return is_expanded_ ? size_.rows * size_.copies : size_.rows; }
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return size_.capacity; }

  // Returns the positions of the next tokens. A position is the number of earlier tokens that
  // count. [rows, tokens] int64, or [1, tokens] if they are the same for all rows.
  at::Tensor positions(std::int64_t tokens) const;
  // The causal mask of the cached tokens and the next ones.
  ops::KeyMask mask(std::int64_t tokens) const;
  // Appends keys and values [rows, tokens, width] of a layer, and returns all of its keys and
  // values as views [rows, length() + tokens, width].
  std::pair<at::Tensor, at::Tensor> append(std::int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values);
  // Counts the tokens that every layer has appended.
  void advance(std::int64_t tokens);

  // Copies each prompt to its other rows: row i becomes the rows i * copies to (i + 1) * copies -
  // 1.
  void expand();
  // Makes row `to` equal to row `from`, which belongs to the same prompt.
  void copy_row(std::int64_t from, std::int64_t to);

  // The memory, for Anatomy::watch_functionality.
  std::vector<at::Tensor> tensors() const;

 private:
  struct Layer {
    at::Tensor keys, values;
  };
  void check_prompt(const at::Tensor& attention_mask) const;
  void check_next(std::int64_t tokens) const;
  std::vector<at::Tensor> keys_and_values() const;
  at::Tensor rows_of(const at::Tensor& all) const;
  std::int64_t& common_prefix(std::int64_t a, std::int64_t b);

  Size size_;
  std::int64_t width_, length_ = 0, prompt_length_ = 0;
  bool is_expanded_ = false;
  std::vector<Layer> layers_;
  // Only set with padding: how many of the first n tokens of each prompt count, [rows][n] for n
  // from 0 to the prompt length, and the mask [rows, capacity].
  std::vector<std::vector<std::int64_t>> token_counts_;
  ops::KeyMask mask_{at::Tensor()};
  // For each pair of rows of one prompt: how many of their first tokens are the same.
  std::vector<std::int64_t> common_prefixes_;
};

}  // namespace hasten
