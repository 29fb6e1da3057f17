#include <nlohmann/json.hpp>

#include <cmath>

#include "hasten/options/training_arguments.h"
#include "options/sources.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

// Writes whole numbers without a fraction, as a person would.
Json number(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json object(const Kwargs& kwargs) {
  Json out = Json::object();
  for (const auto& [name, value] : kwargs.items())
    out[name] = value.is_number() ? number(value.number()) : Json(value.text());
  return out;
}

struct JsonWriter {
  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(bool value) const { return value; }
  Json operator()(std::int64_t value) const { return value; }
  Json operator()(double value) const { return number(value); }
  Json operator()(const std::string& value) const { return value; }
  Json operator()(const std::vector<std::string>& value) const { return value; }
  Json operator()(const Kwargs& value) const { return object(value); }
};

bool is_empty(const config::Value& value) { return config::to_text(value) == "unset"; }

}  // namespace

std::string to_json(const TrainingArguments& arguments) {
  TrainingArguments copy = arguments;
  config::OptionTable table;
  describe(table, copy);
  Json out = Json::object();
  for (const config::Option& option : table.options()) {
    if (!option.has_field) continue;
    const bool unset = is_empty(option.get()) && is_empty(option.default_value);
    out[option.name] = unset ? Json(nullptr) : std::visit(JsonWriter{}, option.get());
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainingArguments training_arguments_from_json(const std::string& json, const std::string& name) {
  TrainingArguments arguments;
  config::OptionTable table;
  describe(table, arguments);
  std::vector<std::string> notices;
  config::resolve(table, {config::read_json(json, name)}, notices);
  config::check_status(table, notices);
  return arguments;
}

}  // namespace hasten
