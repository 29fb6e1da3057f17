// File: data/column_names.h (internal)
// The names of columns in batches that models of Hugging Face share. Thread rule: constants.
#pragma once

namespace hasten {

inline constexpr const char* kInputIdsColumn = "input_ids";
inline constexpr const char* kLabelsColumn = "labels";

}  // namespace hasten
