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

// Texts are not changed. Numbers and booleans are converted to text, and a null to an empty text,
// as for JSON lines. A class becomes its name, and the classes keep their order. A class of -1
// becomes an empty text, which means that there is no label. Lists become JSON texts if
// options.structured is true. Other columns are left out. So are lists with a null or with inner
// lists of different lengths; if options.columns names them, they are an error.
TextTable read_arrow_texts(const std::filesystem::path& path, const TextOptions& options);

// Reads lists of texts with lists of tags. Tags are texts, classes or whole numbers.
TaggedWords read_arrow_words(const std::filesystem::path& path, const TaggedWordsOptions& options);

}  // namespace hasten::detail
