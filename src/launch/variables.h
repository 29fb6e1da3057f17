// File: launch/variables.h (internal)
// A launcher's variables, read as texts and numbers. An empty variable counts as unset, as an empty
// option does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/internal_api.h"
#include "hasten/base/error.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

// Throws ConfigError "launch.environment".
[[noreturn]] void throw_environment(ErrorText text);

class HASTEN_INTERNAL_API Variables {
 public:
  explicit Variables(const config::Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name) const;
  // Returns the value of the first of the two variables that is set; empty if neither is.
  std::string text(const std::string& name, const std::string& other) const;
  // Returns a whole number from 0 to 2^40 - 1, or nullopt if it is unset. Throws for any other
  // text.
  std::optional<std::int64_t> number(const std::string& name) const;
  // Returns the same, but throws if the variable is unset.
  std::int64_t required_number(const std::string& name) const;

 private:
  const config::Environment& environment_;
};

}  // namespace hasten
