#include "trainer/corpus.h"

#include <span>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/text_reader.h"

namespace hasten {
namespace {

bool has_lines(const std::string& file) { return ends_with(lower(file), ".txt"); }

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
  std::vector<std::int32_t> ids;
  for (const Encoding& text : texts)
    ids.insert(ids.end(), text.input_ids.begin(), text.input_ids.end());
  const auto size = static_cast<std::size_t>(length);
  if (ids.size() < size) {
    throw DataError("data.empty", {.what = file,
                                   .got = str(ids.size(), " tokens"),
                                   .expected = str("at least max_length, ", length),
                                   .hint = "use --line_by_line, or a smaller --max_length"});
  }
  TokenDataset rows;
  for (std::size_t at = 0; at + size <= ids.size(); at += size)
    rows.push_back(std::span<const std::int32_t>(ids).subspan(at, size));
  return rows;
}

}  // namespace hasten
