#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "data/text_lines.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/text_reader.h"

namespace hasten {
namespace {

// The whole field as a number. A sign, no blanks, no other decoration.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const char* begin = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end && begin != end;
}

std::string shortened(const std::string& text) {
  return '"' + (text.size() > 60 ? text.substr(0, 60) + "..." : text) + '"';
}

}  // namespace

TextTable::TextTable(std::string file, std::vector<std::string> names)
    : file_(std::move(file)), names_(std::move(names)), columns_(names_.size()) {}

void TextTable::push_back(std::vector<std::string> fields, std::int64_t line) {
  for (std::size_t i = 0; i < columns_.size(); ++i) columns_[i].push_back(std::move(fields[i]));
  lines_.push_back(line);
}

const std::vector<std::string>& TextTable::column(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return columns_[static_cast<std::size_t>(found - names_.begin())];
  const auto near = nearest(name, names_);
  throw DataError("text.missing-column", {.what = file_ + ": there is no column \"" + name + "\"",
                                          .got = "[" + join(names_, ", ") + "]",
                                          .hint = near ? "did you mean \"" + *near + "\"?" : ""});
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
    if (!parse_number(texts[row], values[row])) {
      fail("text.number", name, row, texts[row], "a whole number", "");
    }
  }
  return values;
}

std::vector<double> TextTable::numbers(const std::string& name) const {
  const std::vector<std::string>& texts = column(name);
  std::vector<double> values(texts.size());
  for (std::size_t row = 0; row < texts.size(); ++row) {
    if (!parse_number(texts[row], values[row]) || !std::isfinite(values[row])) {
      fail("text.number", name, row, texts[row], "a number", "");
    }
  }
  return values;
}

ClassColumn TextTable::classes(const std::string& name,
                               const std::vector<std::string>& known) const {
  const std::vector<std::string>& texts = column(name);
  ClassColumn classes{.names = known};
  if (known.empty()) {
    const std::set<std::string> seen(texts.begin(), texts.end());
    classes.names.assign(seen.begin(), seen.end());
  }
  std::map<std::string, std::int64_t> ids;
  for (const std::string& each : classes.names) {
    ids.emplace(each, static_cast<std::int64_t>(ids.size()));
  }
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const auto found = ids.find(texts[row]);
    if (found == ids.end()) {
      const auto near = nearest(texts[row], classes.names);
      fail("text.class", name, row, texts[row], str("one of the ", ids.size(), " known names"),
           near ? "did you mean \"" + *near + "\"?" : "");
    }
    classes.ids.push_back(found->second);
  }
  return classes;
}

}  // namespace hasten
