// File: models/packed_batch.h (internal)
// A batch without its padding: the tokens of all rows, concatenated into one row. In a batch
// of texts padding is often half of all tokens, and most of the cost of a step is
// proportional to their number.
//
//   if (const auto packed = PackedBatch::of(batch, {30522, 512, 2})) {
//     at::Tensor hidden = encoder(embeddings(packed->batch), packed->mask);  // [1, tokens, n]
//     hidden = packed->first_tokens(hidden);                                 // [rows, n]
//   }
#pragma once

#include <cstdint>
#include <optional>

#include "hasten/data/batch.h"
#include "hasten/ops/ops.h"

namespace hasten {

struct PackedBatch {
  // The numbers of rows of the model's tables.
  struct Tables {
    std::int64_t words = 0, positions = 0, types = 0;
  };
  // Returns nullopt if packing would not help (no padding); if it would change the result (a row
  // whose first token is masked, or an id outside of its table, for which an error names the
  // place); or if the mask cannot be read without waiting for a device.
  static std::optional<PackedBatch> of(const TensorDict& batch, const Tables& tables);

  // Returns the first token of each row: hidden [1, tokens, n] -> [rows, n].
  at::Tensor first_tokens(const at::Tensor& hidden) const;

  TensorDict batch;  // input_ids, position_ids and perhaps token_type_ids, [1, tokens]
  ops::KeyMask mask;
  at::Tensor starts;  // [rows], the place of the first token of each row
};

}  // namespace hasten
