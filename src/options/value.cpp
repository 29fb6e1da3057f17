#include "options/value.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/parse_number.h"
#include "base/strict_json.h"
#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/describe.h"

namespace hasten::config {
namespace {

// Removes spaces around the text, and a leading "+".
std::string_view trim_number(std::string_view text) {
  text = trim(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// Returns the text of a scalar from a file or flag, null for other values.
const std::string* text_in(const Value& value) { return std::get_if<std::string>(&value); }

// Reads a value of type T, or a text that `parse` turns into one. Returns whether it succeeded.
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

// Returns true for a word that YAML could read as null or a boolean. PyYAML reads y and n as texts,
// but the specification of YAML 1.1 lists them.
bool is_yaml_word(std::string_view text) {
  const std::string word = lower(text);
  return parse_yaml_bool(word).has_value() || word == "null" || word == "y" || word == "n";
}

// Returns true for text that needs no quotes. It begins with a letter, / or _, so it is neither a
// number nor a date, and it contains no characters with a meaning in YAML.
bool needs_no_quotes(std::string_view text) {
  static constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_";
  static constexpr std::string_view others = "0123456789.+-";
  if (text.empty() || is_yaml_word(text) || letters.find(text[0]) == text.npos) return false;
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return letters.find(letter) != letters.npos || others.find(letter) != others.npos;
  });
}

// Returns true for a character that YAML does not allow in a text or reads as a line break, and
// that the writer of JSON does not escape.
bool is_unprintable(char32_t letter) {
  return (letter >= 0x7F && letter <= 0x9F) || letter == 0x2028 || letter == 0x2029 ||
         letter == 0xFEFF || letter == 0xFFFE || letter == 0xFFFF;
}

// Returns true if the text, which must be UTF-8, stays the same in single quotes.
bool may_be_in_single_quotes(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const DecodedCharacter letter = decode_utf8(text.data() + at);
    if (letter.value < ' ' || letter.value == '\'' || is_unprintable(letter.value)) return false;
    at += letter.size;
  }
  return true;
}

// Returns the text, which must be UTF-8, in double quotes. YAML reads a quoted JSON string as JSON
// does.
std::string in_double_quotes(const std::string& text) {
  const std::string json = nlohmann::json(text).dump();
  std::string quoted;
  for (std::size_t at = 0; at < json.size();) {
    const DecodedCharacter letter = decode_utf8(json.data() + at);
    if (is_unprintable(letter.value)) {
      char code[16];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(letter.value));
      quoted += code;
    } else {
      quoted.append(json, at, letter.size);
    }
    at += letter.size;
  }
  return quoted;
}

}  // namespace

std::optional<bool> parse_yaml_bool(std::string_view word) {
  const std::string plain = lower(word);
  if (plain == "true" || plain == "yes" || plain == "on") return true;
  if (plain == "false" || plain == "no" || plain == "off") return false;
  return std::nullopt;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower(trim(text));
  if (const auto value = parse_yaml_bool(word)) return value;
  if (word == "y" || word == "t" || word == "1") return true;
  if (word == "n" || word == "f" || word == "0") return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return hasten::parse_number<std::int64_t>(trim_number(text));
}

std::optional<double> parse_finite(std::string_view text) {
  const auto value = hasten::parse_number<double>(trim_number(text));
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string to_text(const Value& value) {
  const std::string text = plain_text(value);
  return text.empty() ? "unset" : text;
}

std::string to_argument(const Value& value) {
  return std::holds_alternative<std::monostate>(value) ? "none" : plain_text(value);
}

std::string yaml_scalar(const std::string& text) {
  if (needs_no_quotes(text)) return text;
  const std::string valid = is_utf8(text) ? text : repair_utf8(text);
  return may_be_in_single_quotes(valid) ? "'" + valid + "'" : in_double_quotes(valid);
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

namespace hasten {
namespace {

[[noreturn]] void throw_wrong_type(const std::string& name, const KwargValue& value,
                                   const char* expected) {
  throw ConfigError("config.bad-value",
                    {.what = name, .got = "'" + value.text() + "'", .expected = expected});
}

std::optional<Kwargs> parse_pairs(std::string_view text) {
  Kwargs kwargs;
  for (const std::string& pair : split(text, ',')) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string name(trim(std::string_view(pair).substr(0, equals)));
    const std::string_view value = trim(std::string_view(pair).substr(equals + 1));
    if (name.empty() || value.empty() || kwargs.has(name)) return std::nullopt;
    kwargs.set(name, value);
  }
  return kwargs;
}

std::optional<Kwargs> parse_object(std::string_view text) {
  using Json = nlohmann::json;
  const Json object = parse_json_or_discard<Json>(text);
  if (!object.is_object()) return std::nullopt;
  Kwargs kwargs;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_primitive()) return std::nullopt;
    if (value.is_null()) continue;  // keeps the default
    kwargs.set(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return kwargs;
}

}  // namespace

KwargValue::KwargValue(std::string_view text) {
  const auto number = config::parse_finite(text);
  if (number) {
    value_ = *number;
  } else {
    value_ = std::string(text);
  }
}

std::string KwargValue::text() const {
  return is_number() ? str(number()) : std::get<std::string>(value_);
}

double Kwargs::number(const std::string& name, double fallback) const {
  const auto found = items_.find(name);
  if (found == items_.end()) return fallback;
  if (!found->second.is_number()) throw_wrong_type(name, found->second, "a number");
  return found->second.number();
}

std::string Kwargs::text(const std::string& name, const std::string& fallback) const {
  const auto found = items_.find(name);
  return found == items_.end() ? fallback : found->second.text();
}

bool Kwargs::flag(const std::string& name, bool fallback) const {
  const auto found = items_.find(name);
  if (found == items_.end()) return fallback;
  const auto value = config::parse_bool(found->second.text());
  if (!value) throw_wrong_type(name, found->second, "true or false");
  return *value;
}

void Kwargs::set(const std::string& name, KwargValue value) {
  items_.insert_or_assign(name, std::move(value));
}

std::optional<Kwargs> parse_kwargs(std::string_view text) {
  text = trim(text);
  if (text.empty()) return Kwargs{};
  return text.front() == '{' ? parse_object(text) : parse_pairs(text);
}

std::string to_text(const Kwargs& kwargs) {
  std::vector<std::string> pairs;
  for (const auto& [name, value] : kwargs.items()) pairs.push_back(name + "=" + value.text());
  return join(pairs, ",");
}

}  // namespace hasten
