// File: models/packed_batch.h (internal)
// A batch without padding: the tokens of all rows, concatenated into one row. Padding is often half
// of a batch of texts, and most of a step's cost is proportional to the number of tokens. A
// collator may have packed the batch (DataCollatorWithFlattening); then it has kPackedRows.
//
//   if (const auto packed = PackedBatch::of(batch, {30522, 512, 2})) {
//     at::Tensor hidden = encoder(embeddings(packed->batch), packed->mask);  // [1, tokens, n]
//     hidden = packed->first_tokens(hidden);                                 // [rows, n]
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hasten/data/batch.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/models/training_traits.h"
#include "hasten/ops/ops.h"

namespace hasten {

struct PackedBatch {
  // The number of rows of each of the model's embedding tables.
  struct Tables {
    std::int64_t words = 0, positions = 0, types = 0;
  };
  // Returns an already packed batch as it is. Throws DataError "models.packed-batch" if it is
  // packed in another way. Returns nullopt if there is no padding, or if reading the mask would
  // wait for a device. Also returns nullopt if packing would change the result: the first token of
  // a row is masked, a masked token has a label, or an id is outside its table (the error names its
  // place).
  static std::optional<PackedBatch> of(const TensorDict& batch, const Tables& tables);

  // Returns the first token of each row: hidden [1, tokens, n] -> [rows, n].
  at::Tensor first_tokens(const at::Tensor& hidden) const;

  // input_ids, position_ids and perhaps token_type_ids, [1, tokens]. Labels of tokens are [1,
  // tokens], too. Other labels stay as they are.
  TensorDict batch;
  ops::KeyMask mask;
  at::Tensor starts;  // [rows], where each row begins
};

// Returns the label after each token of labels [rows, length], or [1, tokens] for texts of these
// lengths; the last token of a text has none. Reads through a pointer, so that the labels are also
// known in a dry run.
at::Tensor next_token_labels(const at::Tensor& labels, const std::vector<std::int64_t>& lengths);

}  // namespace hasten
