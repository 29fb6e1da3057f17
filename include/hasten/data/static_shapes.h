// File: hasten/data/static_shapes.h
// Batches of few shapes, for devices that compile a program for each: rows are filled up to those
// of a full batch, and tokens to the next of a few lengths.
//
//   StaticShapes shapes{.max_length = 512};
//   TensorDict padded = with_static_shape(batch, 8, shapes);     // [5, 77] becomes [8, 96]
//
// What is filled in counts nothing. A further row repeats the first one, and its labels are -100,
// which losses and accuracies leave out. A further token has attention_mask 0 (the column is made
// where there is none), its labels are -100, and everything else of it is 0. What cannot be marked
// so stays as it is: the number of rows where labels are floating-point numbers, or where there are
// none and gradients are on; the length where another column than those named here has an entry a
// token.
// The tensors are on the CPU; what has its shape already is given back as it is. Thread rule: pure
// functions. Throws DataError "data.static-length" for rows longer than max_length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/formats/tensor_dict.h"

namespace hasten {

struct StaticShapes {
  // The column of labels; its rows are -100 where they are filled in.
  std::string labels = "labels";
  // Columns with an entry a token, beside the labels.
  std::vector<std::string> tokens = {"input_ids", "attention_mask", "token_type_ids",
                                     "position_ids", "special_tokens_mask"};
  // Rising. Empty: 16, 32, 48, 64, 96, 128, 192, 256 and so on, two a doubling.
  std::vector<std::int64_t> lengths;
  // No length is padded beyond it; 0: no bound. A prepared PreTrainedModel's own is the default.
  std::int64_t max_length = 0;
};

// The first of the lengths that is not below this one, at most max_length.
std::int64_t padded_length(std::int64_t length, const StaticShapes& shapes);

// Rows: those of a full batch; a batch of more keeps its own.
TensorDict with_static_shape(const TensorDict& batch, std::int64_t rows,
                             const StaticShapes& shapes);

// Rows of the batch: the first size of its tensors; 0 where it has none.
std::int64_t rows_of(const TensorDict& batch);

// Undoes the padding of what a model made of the batch: keeps the first `rows` rows, and of a row
// that has an entry a token (three dimensions) the first `length`. Reads it to the CPU.
at::Tensor without_padding(const at::Tensor& outputs, std::int64_t rows, std::int64_t length);

}  // namespace hasten
