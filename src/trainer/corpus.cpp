#include "trainer/corpus.h"

#include <algorithm>
#include <span>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/text_reader.h"

namespace hasten {
namespace {

bool has_lines(const std::string& file) { return ends_with(lower(file), ".txt"); }

// Appends the words of a text, numbered from `next` on, and sets `next` to the number after them.
// The numbers start again at 0 before they become too large, because only neighbours are compared.
void append_words(const std::vector<std::int32_t>& text, std::int32_t& next,
                  std::vector<std::int32_t>& words) {
  constexpr std::int32_t kMaxWordNumber = 1 << 30;
  if (next >= kMaxWordNumber) next = 0;
  std::int32_t count = 0;
  for (const std::int32_t word : text) {
    words.push_back(word < 0 ? word : next + word);
    count = std::max(count, word + 1);
  }
  next += count;
}

}  // namespace

std::vector<std::string> read_corpus(const std::string& file, const std::string& column) {
  const TextTable table = has_lines(file) ? read_text_lines(file, column)
                                          : read_text_table(file, {.columns = {column}});
  std::vector<std::string> texts = table.column(column);
  std::erase_if(texts, [](const std::string& text) { return trim(text).empty(); });
  if (!texts.empty()) return texts;
  throw DataError("data.empty", {.what = file + ", column \"" + column + "\"",
                                 .got = "blank texts",
                                 .expected = "at least one text"});
}

TokenDataset rows_of_length(const std::vector<Encoding>& texts, std::int64_t length,
                            const std::string& file) {
  std::vector<std::int32_t> ids, words;
  std::int32_t next_word = 0;
  for (const Encoding& text : texts) {
    ids.insert(ids.end(), text.input_ids.begin(), text.input_ids.end());
    append_words(text.word_ids, next_word, words);
  }
  const auto size = static_cast<std::size_t>(length);
  if (ids.size() < size) {
    throw DataError("data.empty", {.what = file,
                                   .got = str(ids.size(), " tokens"),
                                   .expected = str("at least max_length, ", length),
                                   .hint = "use --line_by_line, or a smaller --max_length"});
  }
  TokenDataset rows;
  for (std::size_t at = 0; at + size <= ids.size(); at += size) {
    const auto part = [&](const std::vector<std::int32_t>& column) {
      return column.empty() ? TokenDataset::Ids() : TokenDataset::Ids(column).subspan(at, size);
    };
    rows.push_back(part(ids), {}, part(words));
  }
  return rows;
}

TokenDataset one_row_per_text(const std::vector<Encoding>& texts, const std::string& file) {
  TokenDataset rows;
  for (const Encoding& text : texts) {
    if (text.size() > 0) rows.push_back(text.input_ids, {}, text.word_ids);
  }
  if (rows.size() > 0) return rows;
  throw DataError("data.empty", {.what = file,
                                 .got = "texts in which the tokenizer finds no tokens",
                                 .expected = "at least one token",
                                 .hint = "check that the tokenizer belongs to the texts"});
}

}  // namespace hasten
