#include "options/value.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/parse_number.h"
#include "hasten/base/text.h"
#include "options/describe.h"

namespace hasten::config {
namespace {

// Removes spaces around the text and a sign "+".
std::string_view digits_of(std::string_view text) {
  text = trim(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// Returns the text of a scalar from a file or flag, null for other values.
const std::string* text_in(const Value& value) { return std::get_if<std::string>(&value); }

// Takes a value of type T, or a text that `parse` reads as one. Returns whether it could.
template <class T, class Parse>
bool take(T& to, const Value& from, Parse parse) {
  if (const T* same = std::get_if<T>(&from)) {
    to = *same;
    return true;
  }
  const auto read = text_in(from) ? parse(*text_in(from)) : std::nullopt;
  if (read) to = *read;
  return read.has_value();
}

std::vector<std::string> comma_separated(std::string_view text) {
  std::vector<std::string> items;
  for (const std::string& item : split(text, ',')) {
    if (!trim(item).empty()) items.emplace_back(trim(item));
  }
  return items;
}

std::string plain_text(const Value& value) {
  struct Writer {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(bool flag) const { return str(flag); }
    std::string operator()(std::int64_t number) const { return str(number); }
    std::string operator()(double number) const { return str(number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& items) const { return join(items, ","); }
    std::string operator()(const Kwargs& kwargs) const { return hasten::to_text(kwargs); }
  };
  return std::visit(Writer{}, value);
}

}  // namespace

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(trim(text));
  const auto is_one_of = [&](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is_one_of({"y", "yes", "t", "true", "on", "1"})) return true;
  if (is_one_of({"n", "no", "f", "false", "off", "0"})) return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return hasten::parse_number<std::int64_t>(digits_of(text));
}

std::optional<double> parse_finite(std::string_view text) {
  const auto value = hasten::parse_number<double>(digits_of(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string to_text(const Value& value) {
  const std::string text = plain_text(value);
  return text.empty() ? "unset" : text;
}

namespace detail {

bool means_unset(const Value& from) {
  if (std::holds_alternative<std::monostate>(from)) return true;
  if (!text_in(from)) return false;
  const std::string word = lower(*text_in(from));
  return word == "none" || word == "null";
}

bool assign(bool& to, const Value& from) { return take(to, from, parse_bool); }
bool assign(std::int64_t& to, const Value& from) { return take(to, from, parse_integer); }
bool assign(double& to, const Value& from) { return take(to, from, parse_finite); }

bool assign(std::string& to, const Value& from) {
  if (!text_in(from)) return false;
  to = *text_in(from);
  return true;
}

bool assign(std::vector<std::string>& to, const Value& from) {
  return take(to, from,
              [](const std::string& text) { return std::optional(comma_separated(text)); });
}

bool assign(Kwargs& to, const Value& from) {
  return take(to, from, [](const std::string& text) { return parse_kwargs(text); });
}

bool assign(AnyText& to, const Value& from) {
  to.text = means_unset(from) ? "" : plain_text(from);
  return true;
}

}  // namespace detail
}  // namespace hasten::config
