#include "hasten/data/text_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "data/arrow_texts.h"
#include "data/flat_json.h"
#include "data/json_object.h"
#include "data/text_lines.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/arrow_data.h"

namespace hasten {
namespace {

using detail::fail_text;
using nlohmann::ordered_json;

void check_names(const std::vector<std::string>& names, const std::string& file,
                 std::int64_t line) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) fail_text("text.header", file, line, "a column without a name", "", "", "");
    if (!seen.insert(name).second) {
      fail_text("text.header", file, line, "two columns named \"" + name + "\"");
    }
  }
}

// Requires the columns in options.columns and at least one row.
void check_table(const TextTable& table, const TextOptions& options, const std::string& file) {
  for (const std::string& name : options.columns) table.column(name);
  if (table.rows() == 0) fail_text("text.empty", file, 1, "the file has a header line but no rows");
}

TextTable read_records(const std::string& file, detail::RecordReader& reader,
                       const TextOptions& options) {
  std::vector<std::string> names = options.names;
  std::int64_t names_line = 1;
  if (names.empty()) {
    std::optional<detail::Record> header = reader.next();
    names_line = header->line;  // there is one: the file is not empty
    names = std::move(header->fields);
  }
  check_names(names, file, names_line);
  TextTable table(file, names);
  while (auto record = reader.next()) {
    if (record->fields.size() != names.size()) {
      fail_text("text.fields", file, record->line, "fields", std::to_string(record->fields.size()),
                str(names.size(), ", one for each of ", join(names, ", ")),
                record->fields.size() == 1 && record->fields[0].empty()
                    ? "the line is blank: remove it"
                    : "");
    }
    table.push_back(std::move(record->fields), record->line);
  }
  check_table(table, options, file);
  return table;
}

std::string field_text(const ordered_json& value, const std::string& key, const std::string& file,
                       std::int64_t line, bool structured) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "";
  if (value.is_structured() && !structured) {
    fail_text("text.json", file, line, "key \"" + key + "\"",
              value.is_array() ? "an array" : "an object", "a string, number, boolean or null");
  }
  return value.dump();
}

std::vector<std::string> fields_in_order(const ordered_json& object,
                                         const std::vector<std::string>& names,
                                         const std::string& file, std::int64_t line,
                                         bool structured) {
  std::vector<std::string> fields;
  for (const std::string& name : names) {
    const auto found = object.find(name);
    if (found == object.end()) {
      fail_text("text.fields", file, line, "the key \"" + name + "\" is missing");
    }
    fields.push_back(field_text(*found, name, file, line, structured));
  }
  if (object.size() == names.size()) return fields;
  for (const auto& [key, value] : object.items()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      fail_text("text.fields", file, line, "the key \"" + key + "\" is not in the earlier lines");
    }
  }
  return fields;
}

}  // namespace

TextTable read_tsv(const std::filesystem::path& path, const TextOptions& options) {
  const std::string text = detail::read_text(path);
  detail::LineReader reader(text, '\t');
  return read_records(path.string(), reader, options);
}

TextTable read_csv(const std::filesystem::path& path, const TextOptions& options) {
  const std::string text = detail::read_text(path), file = path.string();
  detail::CsvReader reader(text, file);
  return read_records(file, reader, options);
}

TextTable read_jsonl(const std::filesystem::path& path, const TextOptions& options) {
  const std::string text = detail::read_text(path), file = path.string();
  detail::LineReader reader(text, std::nullopt);
  std::optional<TextTable> table;
  while (const auto line = reader.next_line()) {
    std::vector<std::string> fields;
    if (table && detail::read_flat_object(*line, table->names(), fields)) {
      table->push_back(std::move(fields), reader.line());
      continue;
    }
    if (trim(*line).empty()) continue;
    const ordered_json object = detail::parse_json_object(std::string(*line), file, reader.line());
    if (!table) {
      std::vector<std::string> names;
      for (const auto& [key, value] : object.items()) names.push_back(key);
      if (names.empty()) fail_text("text.fields", file, reader.line(), "an object without keys");
      check_names(names, file, reader.line());
      table.emplace(file, std::move(names));
    }
    table->push_back(
        fields_in_order(object, table->names(), file, reader.line(), options.structured),
        reader.line());
  }
  check_table(*table, options, file);  // there is a table: the file is not blank
  return std::move(*table);
}

TextTable read_text_lines(const std::filesystem::path& path, const std::string& column) {
  const std::string text = detail::read_text(path);
  detail::LineReader reader(text, std::nullopt);
  TextTable table(path.string(), {column});
  while (auto record = reader.next()) {
    if (!trim(record->fields[0]).empty()) table.push_back(std::move(record->fields), record->line);
  }
  return table;
}

TextTable read_text_table(const std::filesystem::path& path, const TextOptions& options) {
  if (is_arrow_data(path)) return detail::read_arrow_texts(path, options);
  const std::string ending = lower(path.extension().string());
  if (ending == ".tsv") return read_tsv(path, options);
  if (ending == ".csv") return read_csv(path, options);
  if (ending == ".jsonl" || ending == ".json") return read_jsonl(path, options);
  throw UsageError("text.ending",
                   {.what = path.string() + ": the ending of the file, which selects its format",
                    .got = "\"" + ending + "\"",
                    .expected = ".tsv, .csv, .jsonl, .json, .arrow or .parquet",
                    .hint = "call read_tsv, read_csv or read_jsonl"});
}

}  // namespace hasten
