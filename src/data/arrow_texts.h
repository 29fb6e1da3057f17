// File: data/arrow_texts.h (internal)
// The columns of an Arrow or Parquet dataset as texts, for the tasks of `hasten train`.
//
//   TextTable table = read_arrow_texts("imdb/train", {.columns = {"text", "label"}});
//   TaggedWords words = read_arrow_words("conll/train", {});
//
// The "line" of a row is its number from 1. Throws what load_arrow_dataset throws, and DataError
// "text.*" as read_text_table and read_tagged_words do. Thread rule: pure functions.
#pragma once

#include <filesystem>

#include "hasten/data/tagged_words.h"
#include "hasten/data/text_reader.h"

namespace hasten::detail {

// Texts stay as they are; numbers and booleans become their text and a null an empty one, as in
// JSON lines; a class becomes its name, and the classes keep their order; a class of -1 becomes an
// empty text, no label. Lists are JSON texts if options.structured is true. Other columns are left
// out.
TextTable read_arrow_texts(const std::filesystem::path& path, const TextOptions& options);

// Lists of texts with lists of tags, which are texts, classes or whole numbers.
TaggedWords read_arrow_words(const std::filesystem::path& path, const TaggedWordsOptions& options);

}  // namespace hasten::detail
