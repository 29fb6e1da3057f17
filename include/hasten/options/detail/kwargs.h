// File: hasten/options/detail/kwargs.h
// A small map from names to numbers and texts: the arguments of a schedule or an optimizer, which
// differ between kinds and therefore have no fields of their own.
//
//   Kwargs kwargs = {{"num_cycles", 3}, {"decay_type", "linear"}};
//   kwargs.number("num_cycles", 0.5);                   // 3
//   kwargs.text("warmup_type", "linear");               // "linear", the fallback
//   parse_kwargs("num_cycles=3,decay_type=linear");     // the same map
//   parse_kwargs(R"({"num_cycles": 3})");               // or a JSON object
//
// A text that reads as a number becomes a number, so that files, flags and C++ agree; true and
// false are texts. number() and flag() throw ConfigError "config.bad-value" for a value of another
// kind.
// Thread rule: a value; reading it from several threads is safe.
#pragma once

#include <concepts>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "hasten/base/detail/export.h"

namespace hasten {

class HASTEN_API KwargValue {
 public:
  template <class Number>
  requires(std::is_arithmetic_v<Number> && !std::same_as<Number, bool>) KwargValue(Number number)
      : value_(static_cast<double>(number)) {}
  KwargValue(bool flag) : value_(std::string(flag ? "true" : "false")) {}
  KwargValue(std::string_view text);
  KwargValue(const std::string& text) : KwargValue(std::string_view(text)) {}
  KwargValue(const char* text) : KwargValue(std::string_view(text)) {}

  bool is_number() const { return value_.index() == 0; }
  double number() const { return std::get<double>(value_); }
  // The text, or the number in a form that reads back equal.
  std::string text() const;
  bool operator==(const KwargValue&) const = default;

 private:
  std::variant<double, std::string> value_;
};

class HASTEN_API Kwargs {
 public:
  Kwargs() = default;
  Kwargs(std::initializer_list<std::pair<const std::string, KwargValue>> items) : items_(items) {}

  bool empty() const { return items_.empty(); }
  bool has(const std::string& name) const { return items_.count(name) > 0; }
  // Each returns the value of a name, or `fallback` if there is none.
  double number(const std::string& name, double fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  bool flag(const std::string& name, bool fallback) const;

  void set(const std::string& name, KwargValue value);
  const std::map<std::string, KwargValue>& items() const { return items_; }
  bool operator==(const Kwargs&) const = default;

 private:
  std::map<std::string, KwargValue> items_;
};

// Parses `name=value,name=value` or a flat JSON object, without the names whose value is null.
// Returns nullopt if the text is neither, or if one of the pairs repeats a name.
HASTEN_API std::optional<Kwargs> parse_kwargs(std::string_view text);
// Formats `name=value,name=value`, sorted by name.
HASTEN_API std::string to_text(const Kwargs& kwargs);

}  // namespace hasten
