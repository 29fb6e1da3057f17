// File: launch/variables.h (internal)
// A launcher's variables, read as texts and numbers. An empty one counts as unset, as for options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/internal_api.h"
#include "hasten/base/error.h"
#include "hasten/options/environment.h"

namespace hasten {

// Throws ConfigError "launch.environment".
[[noreturn]] void throw_environment(ErrorText text);

class HASTEN_INTERNAL_API Variables {
 public:
  explicit Variables(const config::Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name) const;
  // The value of the first of the two that is set; empty if neither is.
  std::string text(const std::string& name, const std::string& other) const;
  // A whole number from 0 to 2^40 - 1; nothing if unset. Throws for any other text.
  std::optional<std::int64_t> number(const std::string& name) const;
  // The same, but throws if unset.
  std::int64_t required_number(const std::string& name) const;

 private:
  const config::Environment& environment_;
};

}  // namespace hasten
