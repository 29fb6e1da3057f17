// File: hasten/models/pack_rows.h
// Leaves out the padding of a batch of texts before it is copied to a GPU. The model then computes
// only real tokens, and attention gets the lengths of the rows (docs/techniques.md).
//
//   auto loader =
//       make_loader(dataset, {.batch_size = 32}, PackingCollator<DataCollatorWithPadding>{});
//   TensorDict packed = pack_rows(batch, /*shifts_labels=*/false);  // input_ids [1, tokens]
//
// The model must support such batches (TrainingTraits::supports_packed_batches). Its loss and its
// gradients are those of the padded batch up to rounding, but dropout affects different elements.
// Outputs with an entry for each token are [1, tokens, ...], and those of a text stay [rows, ...].
// On a GPU, attention of numbers with 16 bits needs compute capability 8.0; other GPUs and types
// use a slower kernel. Models on the CPU leave out padding without this.
//
// Throws what the collator throws. Thread rule: pure functions.
#pragma once

#include <span>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// Returns the batch with the unmasked tokens of all rows in one row: input_ids, position_ids, and
// token_type_ids and labels of tokens if it has them, are [1, tokens]; cu_seq_lens_q has the places
// where the rows begin (DataCollatorWithFlattening), and there is no attention_mask. Other columns
// stay as they are. `shifts_labels` is TrainingTraits::shifts_labels() of the model. Positions are
// the columns of the padded batch unless it has position_ids.
//
// Returns the same batch if it has no attention_mask, is packed already or is not in host memory,
// and if packing would change the loss: the first token of a row is masked, or a masked token has a
// label.
HASTEN_API TensorDict pack_rows(const TensorDict& batch, bool shifts_labels);

// Makes batches with another collator, and packs their rows.
template <class Collator>
struct PackingCollator {
  Collator collator = {};
  bool shifts_labels = false;

  template <class Row>
  auto operator()(std::span<const Row> rows) const
      -> decltype(pack_rows(std::declval<const Collator&>()(rows), false)) {
    return pack_rows(collator(rows), shifts_labels);
  }
};

}  // namespace hasten
