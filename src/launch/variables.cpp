#include "launch/variables.h"

#include "base/parse_number.h"

namespace hasten {

void throw_environment(ErrorText text) { throw ConfigError("launch.environment", std::move(text)); }

std::string Variables::text(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? std::string() : found->second;
}

std::string Variables::text(const std::string& name, const std::string& other) const {
  return has(name) ? text(name) : text(other);
}

std::optional<std::int64_t> Variables::number(const std::string& name) const {
  const std::string word = text(name);
  if (word.empty()) return std::nullopt;
  const auto value = parse_number<std::int64_t>(word);
  // Below 2^40, so that sums of such numbers cannot overflow.
  if (!value || *value < 0 || *value >> 40 != 0)
    throw_environment(
        {.what = name, .got = "'" + word + "'", .expected = "a whole number of at least 0"});
  return value;
}

std::int64_t Variables::required_number(const std::string& name) const {
  if (const auto value = number(name)) return *value;
  throw_environment({.what = name + " is not set, but other variables of the same launcher are",
                     .hint = "set all of its variables, or none"});
}

}  // namespace hasten
