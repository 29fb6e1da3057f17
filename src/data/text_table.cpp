#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/did_you_mean.h"
#include "base/parse_number.h"
#include "data/padding.h"
#include "data/text_lines.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/text_reader.h"

namespace hasten {
namespace {

// Parses the whole field as a number. It may have a sign, but no spaces or other decoration.
template <class Number>
std::optional<Number> parse_field(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return parse_number<Number>(text);
}

std::string shortened(const std::string& text) {
  return '"' + (text.size() > 60 ? text.substr(0, 60) + "..." : text) + '"';
}

// The class name of a row without a class: kIgnoredLabel as text.
constexpr const char* kIgnoredClassName = "-100";
static_assert(kIgnoredLabel == -100);

// Sorts by number; names of the same number ("1" and "01") stay sorted by their bytes.
void sort_numbers(std::vector<std::string>& names) {
  const auto value_of = [](const std::string& name) {
    return parse_field<double>(name).value_or(0);
  };
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return value_of(a) < value_of(b);
  });
}

}  // namespace

TextKind kind_of(const std::vector<std::string>& texts) {
  const auto is_whole = [](const std::string& text) {
    return parse_field<std::int64_t>(text).has_value();
  };
  const auto is_number = [](const std::string& text) {
    const auto value = parse_field<double>(text);
    return value && std::isfinite(*value);
  };
  if (std::all_of(texts.begin(), texts.end(), is_whole)) return TextKind::whole_numbers;
  return std::all_of(texts.begin(), texts.end(), is_number) ? TextKind::numbers : TextKind::names;
}

TextTable::TextTable(std::string file, std::vector<std::string> names)
    : file_(std::move(file)), names_(std::move(names)), columns_(names_.size()) {}

void TextTable::push_back(std::vector<std::string> fields, std::int64_t line) {
  for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].push_back(std::move(fields[i]));
  lines_.push_back(line);
}

const std::vector<std::string>& TextTable::column(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return columns_[static_cast<std::size_t>(found - names_.begin())];
  const char* const hint =
      names_.size() == 1
          ? "the columns of a .csv file are separated by commas, and those of a .tsv file by tabs"
          : "name another column (--text_column, --label_column)";
  throw DataError("text.missing-column",
                  {.what = file_ + ": there is no column \"" + name + "\"",
                   .got = "[" + join(names_, ", ") + "]",
                   .hint = did_you_mean(nearest(name, names_), hint, in_quotes)});
}

void TextTable::fail(const char* code, const std::string& column, std::size_t row,
                     const std::string& got, const std::string& expected,
                     const std::string& hint) const {
  detail::fail_text(code, file_, lines_[row], "column \"" + column + "\"", shortened(got), expected,
                    hint);
}

std::vector<std::int64_t> TextTable::integers(const std::string& name) const {
  const std::vector<std::string>& texts = column(name);
  std::vector<std::int64_t> values(texts.size());
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const auto value = parse_field<std::int64_t>(texts[row]);
    if (!value) fail("text.number", name, row, texts[row], "a whole number", "");
    values[row] = *value;
  }
  return values;
}

std::vector<double> TextTable::numbers(const std::string& name, const std::string& hint) const {
  const std::vector<std::string>& texts = column(name);
  std::vector<double> values(texts.size());
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const auto value = parse_field<double>(texts[row]);
    if (!value || !std::isfinite(*value))
      fail("text.number", name, row, texts[row], "a number", hint);
    values[row] = *value;
  }
  return values;
}

std::vector<std::string> TextTable::class_names(const std::string& name) const {
  const std::vector<std::string>& texts = column(name);
  std::set<std::string> seen;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const std::string_view text = trim(texts[row]);
    if (text.empty()) {
      fail("text.class", name, row, texts[row], "the name of a class",
           "give the row a label, or remove the row");
    }
    if (text != kIgnoredClassName) seen.emplace(text);
  }
  if (const auto declared = declared_classes_.find(name); declared != declared_classes_.end())
    return declared->second;
  std::vector<std::string> names(seen.begin(), seen.end());
  if (kind_of(names) != TextKind::names) sort_numbers(names);
  return names;
}

std::vector<std::int64_t> TextTable::class_ids(const std::string& name,
                                               const std::map<std::string, std::int64_t>& ids,
                                               const std::string& hint) const {
  std::vector<std::int64_t> out;
  const std::vector<std::string>& texts = column(name);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const std::string text(trim(texts[row]));
    if (const auto found = ids.find(text); found != ids.end()) {
      out.push_back(found->second);
    } else if (text == kIgnoredClassName) {
      out.push_back(kIgnoredLabel);
    } else {
      std::vector<std::string> names;
      std::set<std::int64_t> distinct_ids;
      for (const auto& [known, id] : ids) {
        names.push_back(known);
        distinct_ids.insert(id);
      }
      // A number that is close to another one is not a misspelling of it.
      const auto near = kind_of({text}) == TextKind::names ? nearest(text, names) : std::nullopt;
      fail("text.class", name, row, texts[row],
           str("one of the ", distinct_ids.size(), " known names"),
           did_you_mean(near, hint, in_quotes));
    }
  }
  return out;
}

void TextTable::declare_classes(const std::string& name, std::vector<std::string> classes) {
  (void)column(name);
  declared_classes_[name] = std::move(classes);
}

ClassColumn TextTable::classes(const std::string& name,
                               const std::vector<std::string>& known) const {
  ClassColumn classes{.ids = {}, .names = known.empty() ? class_names(name) : known};
  std::map<std::string, std::int64_t> ids;
  for (std::size_t id = 0; id < classes.names.size(); ++id)
    ids.emplace(classes.names[id], static_cast<std::int64_t>(id));
  classes.ids = class_ids(name, ids);
  return classes;
}

}  // namespace hasten
