// File: data/column_names.h (internal)
// The names of columns in batches that models of Hugging Face share. Thread rule: constants.
#pragma once

namespace hasten {

inline constexpr const char* kInputIdsColumn = "input_ids";
inline constexpr const char* kLabelsColumn = "labels";
// The bounds of the rows in a packed batch; kPackedRows of the public headers.
inline constexpr const char* kRowBoundsColumn = "cu_seq_lens_q";

}  // namespace hasten
