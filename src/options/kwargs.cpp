#include "hasten/options/kwargs.h"

#include <nlohmann/json.hpp>

#include "base/unique_keys.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/value.h"

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
  bool is_repeated = false;
  const auto check = unique_keys<Json>([&](int, const std::string&) { is_repeated = true; });
  const Json object = Json::parse(text, check, false);
  if (is_repeated || !object.is_object()) return std::nullopt;
  Kwargs kwargs;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_primitive() || value.is_null()) return std::nullopt;
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
