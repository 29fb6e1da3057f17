// File: trainer/corpus.h (internal)
// The texts of a language model, and the rows of tokens that they become.
//
//   const std::vector<std::string> texts = read_corpus("corpus.txt", "text");
//   TokenDataset rows = rows_of_length(tokenizer.encode_batch(texts), 512, "corpus.txt");
//
// Throws DataError and IoError. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/data/token_dataset.h"
#include "hasten/tokenizers/detail/encoding.h"

namespace hasten {

// Returns the texts of a file that are not blank: the lines of a .txt file, or a column of a table.
std::vector<std::string> read_corpus(const std::string& file, const std::string& column);

// Joins the texts, and cuts them into rows of `length` tokens. The rest at the end is left out. If
// the texts have word_ids, the rows have the numbers of their words as token_labels. Neighbouring
// words have different numbers, and special tokens have -1.
TokenDataset rows_of_length(const std::vector<Encoding>& texts, std::int64_t length,
                            const std::string& file);
// Returns a row for each text that has tokens, with token_labels as in rows_of_length.
TokenDataset one_row_per_text(const std::vector<Encoding>& texts, const std::string& file);

}  // namespace hasten
