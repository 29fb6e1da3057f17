// File: hasten/data/tagged_words.h
// Reads texts with a tag for each word, for example a tag that marks the names of persons or
// places: JSON lines with a list of words and a list of the same number of tags, or two such
// columns of Arrow or Parquet data.
//
//   TaggedWords texts = read_tagged_words("train.jsonl");  // {"tokens": [...], "tags": [...]}
//   std::span<const std::string> words = texts.words(0);
//   std::vector<std::string> names = texts.tags().class_names("tags");
//
// Words are texts, tags are texts or whole numbers. Other keys are ignored, and blank lines are
// skipped. Throws IoError "io.*", and DataError "text.*" with a message that begins with file:line.
// Thread rule: values; reading is safe on many threads.
// Source: the files of transformers' examples/pytorch/token-classification (tokens, ner_tags).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/text_reader.h"

namespace hasten {

struct TaggedWordsOptions {
  std::string words_column = "tokens";
  std::string tags_column = "tags";
  bool tags_required = true;  // If false, all rows of the file may lack tags.
};

class HASTEN_API TaggedWords {
 public:
  TaggedWords(std::string file, std::string tags_column);

  std::int64_t rows() const noexcept { return static_cast<std::int64_t>(ends_.size()); }
  // The words of a row, at least one.
  std::span<const std::string> words(std::int64_t row) const;
  // The index of the row's first word among the words of all rows.
  std::int64_t first_word(std::int64_t row) const;
  bool has_tags() const noexcept { return tags_.rows() > 0; }
  // The tags of all words, as a table of one column with a row for each word. Its line numbers are
  // those in the file.
  const TextTable& tags() const noexcept { return tags_; }

  // Adds a row from this line of the file. `tags` has one text for each word, or is empty.
  void push_back(std::vector<std::string> words, std::vector<std::string> tags, std::int64_t line);
  // Sets the names of the tags by number, for a file that defines them.
  void declare_tags(std::vector<std::string> tags);

 private:
  std::vector<std::string> words_;
  std::vector<std::int64_t> ends_;  // The end of each row in words_.
  TextTable tags_;
};

HASTEN_API TaggedWords read_tagged_words(const std::filesystem::path& path,
                                         const TaggedWordsOptions& options = {});

}  // namespace hasten
