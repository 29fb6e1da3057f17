// File: launch/variables.h (internal)
// Reads the variables that a launcher sets, as texts and as numbers. An empty variable counts as
// unset, as it does for options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hasten/base/error.h"
#include "hasten/config/sources.h"

namespace hasten {

// Throws ConfigError "launch.environment".
[[noreturn]] void throw_environment(ErrorText text);

class Variables {
 public:
  explicit Variables(const config::Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  // Returns the value; empty if the variable is unset.
  std::string text(const std::string& name) const;
  // Returns the value of the first of the two that is set; empty if neither is.
  std::string text(const std::string& name, const std::string& other) const;
  // Returns a whole number from 0 to 2^40 - 1; nothing if the variable is unset. Throws for any
  // other text.
  std::optional<std::int64_t> number(const std::string& name) const;
  // Returns such a number. Throws if the variable is unset, too.
  std::int64_t needed(const std::string& name) const;

 private:
  const config::Environment& environment_;
};

}  // namespace hasten
