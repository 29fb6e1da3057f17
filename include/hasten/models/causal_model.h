// File: hasten/models/causal_model.h
// The interface of models for generate(): the logits of the next token, with a cache of keys and
// values.
//
//   struct Bigrams : torch::nn::Module, CausalModel {
//     at::Tensor table = register_parameter("table", at::zeros({100, 100}));
//     CacheShape cache_shape() const override { return {}; }   // it remembers nothing
//     std::int64_t max_length() const override { return 0; }
//     at::Tensor next_logits(const at::Tensor& ids, KeyValueCache&) override {
//       return at::embedding(table, ids.select(1, ids.size(1) - 1));
//     }
//   };
//
// GPT2LMHeadModel and LlamaForCausalLM implement it. generate() throws what these functions throw.
// Thread rule: that of the module.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/key_value_cache.h"

namespace hasten {

class HASTEN_API CausalModel {
 public:
  virtual ~CausalModel() = default;

  virtual CacheShape cache_shape() const = 0;
  // The most tokens that a row may have; 0: no limit.
  virtual std::int64_t max_length() const = 0;
  // Takes the next tokens of each row, ids [cache.rows(), tokens] int64, and appends their keys and
  // values to the cache of each layer; the caller then advances the cache. Returns the logits
  // [cache.rows(), vocabulary] for the token after the last one.
  virtual at::Tensor next_logits(const at::Tensor& ids, KeyValueCache& cache) = 0;
};

}  // namespace hasten
