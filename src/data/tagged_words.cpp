#include "hasten/data/tagged_words.h"

#include <optional>
#include <utility>

#include "data/arrow_texts.h"
#include "data/json_object.h"
#include "data/text_lines.h"
#include "hasten/base/text.h"
#include "machine/arrow_data.h"

namespace hasten {
namespace {

using nlohmann::ordered_json;
using Texts = std::vector<std::string>;

// One object of the file, and its place for messages.
struct TaggedLine {
  const ordered_json& object;
  const std::string& file;
  std::int64_t line;

  [[noreturn]] void fail(const char* code, const std::string& what, std::string got,
                         std::string expected, std::string hint = "") const {
    detail::fail_text(code, file, line, what, std::move(got), std::move(expected), std::move(hint));
  }

  const ordered_json& list(const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end())
      fail("text.fields", "the key \"" + key + "\"", "none", "a list, as in the earlier lines");
    if (!found->is_array()) fail("text.json", "key \"" + key + "\"", found->type_name(), "a list");
    return *found;
  }

  // Returns the texts of a list, including its whole numbers if they are allowed.
  Texts texts(const std::string& key, bool numbers_allowed) const {
    Texts out;
    for (const ordered_json& item : list(key)) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      } else if (numbers_allowed && item.is_number_integer()) {
        out.push_back(item.dump());
      } else {
        fail("text.json", str("key \"", key, "\", entry ", out.size()), item.dump(),
             numbers_allowed ? "a text or a whole number" : "a text");
      }
    }
    return out;
  }
};

// Requires a key of the first object. The error lists the keys that exist.
void require_key(const TaggedLine& first, const std::string& key) {
  Texts keys;
  for (const auto& [name, value] : first.object.items()) keys.push_back(name);
  (void)TextTable(first.file, std::move(keys)).column(key);
}

void add_tagged_row(TaggedWords& rows, const TaggedLine& line, const TaggedWordsOptions& options,
                    bool has_tags) {
  Texts words = line.texts(options.words_column, false);
  if (words.empty()) {
    line.fail("text.fields", "key \"" + options.words_column + "\"", "an empty list",
              "at least one word", "remove the line");
  }
  if (!has_tags) {
    if (line.object.contains(options.tags_column))
      line.fail("text.fields",
                "the key \"" + options.tags_column + "\" is not in the earlier lines", "", "");
    return rows.push_back(std::move(words), {}, line.line);
  }
  Texts tags = line.texts(options.tags_column, true);
  if (tags.size() != words.size()) {
    line.fail("text.fields", "key \"" + options.tags_column + "\"", str(tags.size(), " tags"),
              str(words.size(), ", one for each word of \"", options.words_column, "\""));
  }
  rows.push_back(std::move(words), std::move(tags), line.line);
}

}  // namespace

TaggedWords::TaggedWords(std::string file, std::string tags_column)
    : tags_(std::move(file), {std::move(tags_column)}) {}

std::int64_t TaggedWords::first_word(std::int64_t row) const {
  return row == 0 ? 0 : ends_.at(static_cast<std::size_t>(row - 1));
}

std::span<const std::string> TaggedWords::words(std::int64_t row) const {
  const auto from = static_cast<std::size_t>(first_word(row)),
             to = static_cast<std::size_t>(ends_.at(static_cast<std::size_t>(row)));
  return std::span(words_).subspan(from, to - from);
}

void TaggedWords::push_back(std::vector<std::string> words, std::vector<std::string> tags,
                            std::int64_t line) {
  for (std::string& word : words) words_.push_back(std::move(word));
  for (std::string& tag : tags) tags_.push_back({std::move(tag)}, line);
  ends_.push_back(static_cast<std::int64_t>(words_.size()));
}

void TaggedWords::declare_tags(std::vector<std::string> tags) {
  tags_.declare_classes(tags_.names()[0], std::move(tags));
}

TaggedWords read_tagged_words(const std::filesystem::path& path,
                              const TaggedWordsOptions& options) {
  if (is_arrow_data(path)) return detail::read_arrow_words(path, options);
  const std::string text = detail::read_text(path), file = path.string();
  detail::LineReader reader(text, std::nullopt);
  TaggedWords rows(file, options.tags_column);
  std::optional<bool> has_tags;
  while (const auto record = reader.next()) {
    if (trim(record->fields[0]).empty()) continue;
    const ordered_json object = detail::parse_json_object(record->fields[0], file, record->line);
    const TaggedLine line{object, file, record->line};
    if (!has_tags) {
      require_key(line, options.words_column);
      if (options.tags_required) require_key(line, options.tags_column);
      has_tags = object.contains(options.tags_column);
    }
    add_tagged_row(rows, line, options, *has_tags);
  }
  return rows;
}

}  // namespace hasten
