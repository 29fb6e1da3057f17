#include "data/arrow_texts.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/arrow_files.h"
#include "data/text_lines.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

// The largest number of empty lists that a row may have in its JSON text. A few bytes of a file can
// describe billions of them.
constexpr std::int64_t kMaxEmptyLists = 1 << 16;

// Returns the shortest text that reads as the number. pandas writes a missing number as a NaN,
// which becomes an empty text like a null.
std::string text_of_number(double value) {
  if (std::isnan(value)) return "";
  return std::isfinite(value) ? json(value).dump() : std::to_string(value);
}

// Returns the values of a cell, one text each.
Texts texts_in(const ArrowFiles::Row& row, const ArrowDatasetColumn& column,
               const ArrowCell& cell) {
  const auto count = static_cast<std::size_t>(cell.count);
  Texts out;
  out.reserve(count);
  if (column.value == ArrowValue::text) {
    for (const std::string_view text : row.texts(column, cell)) out.emplace_back(text);
  } else if (column.value == ArrowValue::number) {
    std::vector<double> values(count);
    row.copy(column, cell, values.data());
    for (const double value : values) out.push_back(text_of_number(value));
  } else if (column.value == ArrowValue::boolean) {
    const std::unique_ptr<bool[]> values(new bool[count]);
    row.copy(column, cell, values.get());
    for (std::size_t i = 0; i < count; ++i) out.push_back(values[i] ? "true" : "false");
  } else {
    std::vector<std::int64_t> values(count);
    row.copy(column, cell, values.data());
    for (const std::int64_t value : values) {
      if (column.names.empty()) {
        out.push_back(std::to_string(value));
      } else if (value >= 0 && value < static_cast<std::int64_t>(column.names.size())) {
        out.push_back(column.names[static_cast<std::size_t>(value)]);
      } else if (value == -1) {
        out.emplace_back();
      } else {
        row.fail(column, "the class " + std::to_string(value),
                 str("0 to ", column.names.size() - 1, ", or -1 for none"));
      }
    }
  }
  return out;
}

// Appends the values as nested JSON lists.
void append_json(std::string& to, const Texts& values, const ArrowCell& cell, std::size_t level,
                 std::size_t& at, bool quoted) {
  if (level == cell.shape.size()) {
    to += quoted ? json(values[at]).dump() : values[at];
    ++at;
    return;
  }
  to += '[';
  for (std::int64_t i = 0; i < cell.shape[level]; ++i) {
    if (i > 0) to += ", ";
    append_json(to, values, cell, level + 1, at, quoted);
  }
  to += ']';
}

void check_empty_lists(const ArrowFiles::Row& row, const ArrowDatasetColumn& column,
                       const ArrowCell& cell) {
  if (cell.count > 0) return;  // no list is empty
  std::int64_t lists = 1;
  for (const std::int64_t length : cell.shape) {
    if (length > kMaxEmptyLists / lists)
      row.fail(column, str("more than ", kMaxEmptyLists, " empty lists"), "fewer");
    lists *= std::max<std::int64_t>(length, 1);
  }
}

std::string field_of(const ArrowFiles::Row& row, const ArrowDatasetColumn& column) {
  if (row.is_null(column)) return "";
  const ArrowCell cell = row.find(column);
  check_empty_lists(row, column, cell);
  Texts values = texts_in(row, column, cell);
  if (column.lists == 0) return std::move(values[0]);
  std::string text;
  std::size_t at = 0;
  append_json(text, values, cell, 0, at, column.value == ArrowValue::text || !column.names.empty());
  return text;
}

// Returns the column with the names of its integers, which may be known only after reading it.
const ArrowDatasetColumn& read_column(ArrowFiles& files, const std::string& name,
                                      ArrowNullPolicy nulls) {
  files.read(files.column(name), nulls);
  return files.column(name);
}

void check_has_rows(const ArrowFiles& files) {
  if (files.rows() == 0) fail_text("text.empty", files.source(), 1, "there are no rows");
}

// Returns the field of each row. Returns nothing for lists that cannot be texts, such as those with
// a null, if the options do not require the column.
std::optional<Texts> fields_of(const ArrowFiles& files, const ArrowDatasetColumn& column,
                               const TextOptions& options) {
  const auto& required = options.columns;
  const bool is_required = column.lists == 0 || std::find(required.begin(), required.end(),
                                                          column.name) != required.end();
  Texts fields;
  try {
    for (std::int64_t index = 0; index < files.rows(); ++index)
      fields.push_back(field_of(files.row(index), column));
  } catch (const DataError& error) {
    const std::string& got = error.text().got;
    const bool may_be_left_out = got == "a null" || got == "lists of different lengths in one row";
    if (is_required || !may_be_left_out) throw;
    return std::nullopt;
  }
  return fields;
}

Texts column_names(const std::vector<ArrowDatasetColumn>& columns) {
  Texts names;
  for (const ArrowDatasetColumn& column : columns) names.push_back(column.name);
  return names;
}

// Returns a column of lists. Their values are texts, or can be converted to texts.
const ArrowDatasetColumn& list_column(ArrowFiles& files, const std::string& name) {
  const ArrowDatasetColumn& column = read_column(files, name, ArrowNullPolicy::refused);
  if (column.lists == 1 && column.value != ArrowValue::other) return column;
  throw DataError("data.arrow-column", {.what = files.source() + ", column \"" + name + "\"",
                                        .got = "the type " + column.type,
                                        .expected = "a list in each row"});
}

}  // namespace

TextTable read_arrow_texts(const std::filesystem::path& path, const TextOptions& options) {
  ArrowFiles files(path);
  check_has_rows(files);
  Texts names;
  for (const ArrowDatasetColumn& column : files.columns()) {
    const bool is_text = column.value != ArrowValue::other;
    if (is_text && (column.lists == 0 || options.structured)) names.push_back(column.name);
  }
  const TextTable all(files.source(), names);
  for (const std::string& name : options.columns) (void)all.column(name);
  std::vector<ArrowDatasetColumn> columns;
  std::vector<Texts> fields;  // of each column
  for (const std::string& name : names) {
    const ArrowDatasetColumn column = read_column(files, name, ArrowNullPolicy::kept);
    std::optional<Texts> texts = fields_of(files, column, options);
    if (!texts) continue;
    columns.push_back(column);
    fields.push_back(*std::move(texts));
  }
  TextTable table(files.source(), column_names(columns));
  for (std::int64_t index = 0; index < files.rows(); ++index) {
    Texts row;
    for (Texts& column : fields) row.push_back(std::move(column[static_cast<std::size_t>(index)]));
    table.push_back(std::move(row), index + 1);
  }
  for (const ArrowDatasetColumn& column : columns) {
    if (column.lists == 0 && !column.names.empty())
      table.declare_classes(column.name, column.names);
  }
  return table;
}

TaggedWords read_arrow_words(const std::filesystem::path& path, const TaggedWordsOptions& options) {
  ArrowFiles files(path);
  check_has_rows(files);
  const ArrowDatasetColumn words = list_column(files, options.words_column);
  const bool has_tags = options.tags_required || files.has(options.tags_column);
  const std::optional<ArrowDatasetColumn> tags =
      has_tags ? std::optional(list_column(files, options.tags_column)) : std::nullopt;
  TaggedWords rows(files.source(), options.tags_column);
  if (tags && !tags->names.empty()) rows.declare_tags(tags->names);
  for (std::int64_t index = 0; index < files.rows(); ++index) {
    const ArrowFiles::Row row = files.row(index);
    Texts of_row = texts_in(row, words, row.find(words)), own_tags;
    if (of_row.empty()) row.fail(words, "an empty list", "at least one word", "remove the row");
    if (tags) own_tags = texts_in(row, *tags, row.find(*tags));
    if (tags && own_tags.size() != of_row.size())
      row.fail(*tags, str(own_tags.size(), " tags"),
               str(of_row.size(), ", one for each word of \"", options.words_column, "\""));
    rows.push_back(std::move(of_row), std::move(own_tags), index + 1);
  }
  return rows;
}

}  // namespace hasten::detail
