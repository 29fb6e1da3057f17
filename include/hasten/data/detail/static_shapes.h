// File: hasten/data/detail/static_shapes.h
// Pads batches to a few shapes, for devices that compile a program for each shape. Pads the rows to
// a full batch, and the tokens to the next of a few lengths.
//
//   StaticShapes shapes{.max_length = 512};
//   TensorDict padded = with_static_shape(batch, 8, shapes);     // [5, 77] becomes [8, 96]
//
// Padding does not change losses or scores. An added row repeats the first one, with labels of
// -100, which losses and accuracies ignore. An added token has attention_mask 0 (the column is
// created if it is missing), labels of -100, and 0 in all other columns. A size stays as it is if
// its padding could not be marked: the number of rows if labels are floating-point, or if there are
// no labels and gradients are on; the length if a column that is not named here has one entry per
// token. Tensors must be on the CPU; a batch that already has its shape is returned unchanged.
// Throws DataError "data.static-length" for rows longer than max_length. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct StaticShapes {
  // The column of labels, which are -100 in padding.
  std::string labels = "labels";
  // Columns with one entry per token, in addition to the labels.
  std::vector<std::string> tokens = {"input_ids", "attention_mask", "token_type_ids",
                                     "position_ids", "special_tokens_mask"};
  // The lengths, ascending. If empty, they are 16, 32, 48, 64, 96, 128, 192, 256 and so on, two per
  // doubling.
  std::vector<std::int64_t> lengths = {};
  // The longest padded length; 0 means no limit. Prepared loaders take it from a prepared model
  // that has one (TrainingTraits::max_length).
  std::int64_t max_length = 0;
};

// Returns the first of the lengths that is at least `length`, limited to max_length.
HASTEN_API std::int64_t padded_length(std::int64_t length, const StaticShapes& shapes);

// Pads to `rows` rows, the size of a full batch; a larger batch keeps its rows.
HASTEN_API TensorDict with_static_shape(const TensorDict& batch, std::int64_t rows,
                                        const StaticShapes& shapes);

// Returns the first size of the batch's tensors, or 0 if it has no tensors.
HASTEN_API std::int64_t rows_of(const TensorDict& batch);

// Removes the padding from a model's outputs: keeps the first `rows` rows and, if outputs have an
// entry per token (three dimensions), the first `length` tokens. Returns a tensor on the CPU.
HASTEN_API at::Tensor without_padding(const at::Tensor& outputs, std::int64_t rows,
                                      std::int64_t length);

}  // namespace hasten
