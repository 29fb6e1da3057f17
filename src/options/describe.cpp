#include "options/describe.h"

#include <algorithm>
#include <cmath>

#include "hasten/base/text.h"

namespace hasten::config {
namespace {

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

std::string canonical(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::optional<double> number_in(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

std::string range(const Limits& limits) {
  const bool low = limits.minimum.has_value(), high = limits.maximum.has_value();
  if (low && high) {
    return (limits.above ? " in (" : " in [") + str(*limits.minimum) + ", " + str(*limits.maximum) +
           (limits.below ? ")" : "]");
  }
  if (low) return (limits.above ? " above " : " of at least ") + str(*limits.minimum);
  if (high) return (limits.below ? " below " : " of at most ") + str(*limits.maximum);
  return "";
}

}  // namespace

std::string to_text(const Origin& origin) {
  switch (origin.source) {
    case Origin::Source::default_value:
      return "default";
    case Origin::Source::derived:
      return "derived from " + origin.where;
    default:
      return origin.where;
  }
}

bool Option::is_in_limits() const {
  const Value value = get();
  if (const auto* items = std::get_if<std::vector<std::string>>(&value);
      items && !choices.empty()) {
    return std::all_of(items->begin(), items->end(),
                       [&](const auto& item) { return contains(choices, item); });
  }
  const auto number = number_in(value);
  if (!number) return true;
  if (limits.minimum && !(limits.above ? *number > *limits.minimum : *number >= *limits.minimum))
    return false;
  if (limits.maximum && !(limits.below ? *number < *limits.maximum : *number <= *limits.maximum))
    return false;
  return std::isfinite(*number);
}

std::string Option::expected() const {
  const std::string unset = optional ? ", or none" : "";
  switch (kind) {
    case Kind::boolean:
      return "true or false" + unset;
    case Kind::integer:
      return "a whole number" + range(limits) + unset;
    case Kind::number:
      return "a number" + range(limits) + unset;
    case Kind::text:
      return "a string";
    case Kind::choice:
      return "one of " + join(choices, ", ") + unset;
    case Kind::list:
      if (keeps_commas) return "one or more texts";
      return choices.empty() ? "names separated by commas"
                             : "one or more of " + join(choices, ", ");
    case Kind::kwargs:
      return "name=value,name=value or a flat JSON object";
  }
  return "";
}

Option& Option::at_least(double value) {
  limits.minimum = value;
  return *this;
}

Option& Option::above(double value) {
  limits.above = true;
  return at_least(value);
}

Option& Option::at_most(double value) {
  limits.maximum = value;
  return *this;
}

Option& Option::below(double value) {
  limits.below = true;
  return at_most(value);
}

Option& Option::one_of(std::vector<std::string> values) {
  choices = std::move(values);
  return *this;
}

Option& Option::refused_choices(const std::vector<std::string>& values, const std::string& hint) {
  for (const std::string& value : values) choices_refused.emplace_back(value, hint);
  return *this;
}

Option& Option::unimplemented_choices(std::vector<std::string> values, std::string hint) {
  choices_unimplemented = std::move(values);
  unimplemented_hint = std::move(hint);
  std::erase_if(choices, [&](const auto& value) { return contains(choices_unimplemented, value); });
  return *this;
}

Option& Option::alias(std::string text, std::string means) {
  aliases.emplace_back(std::move(text), std::move(means));
  return *this;
}

Option& Option::keep_commas() {
  keeps_commas = true;
  return *this;
}

Option& Option::former_name(std::string former, std::optional<double> below) {
  former_names.push_back({std::move(former), below});
  return *this;
}

Option& Option::not_supported(std::string why) {
  status = Status::unimplemented;
  reason = std::move(why);
  return *this;
}

const Option* OptionTable::find(std::string_view name) const {
  const std::string wanted = canonical(name);
  for (const Option& option : options_) {
    if (option.name == wanted) return &option;
  }
  for (const Option& option : options_) {
    for (const FormerName& former : option.former_names) {
      if (former.name == wanted) return &option;
    }
  }
  return nullptr;
}

Option* OptionTable::find(std::string_view name) {
  return const_cast<Option*>(static_cast<const OptionTable&>(*this).find(name));
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> out;
  for (const Option& option : options_) {
    out.push_back(option.name);
    for (const FormerName& former : option.former_names) out.push_back(former.name);
  }
  return out;
}

}  // namespace hasten::config
