// File: launch/variables.h (internal)
// The variables of a launcher, read as texts and as numbers. An empty one counts as unset, as for
// options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "hasten/base/error.h"
#include "hasten/config/sources.h"

namespace hasten {

[[noreturn]] void throw_environment(ErrorText text);

class Variables {
 public:
  explicit Variables(const config::Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return !text(name).empty(); }
  std::string text(const std::string& name) const;
  // The first of the two that is set, else empty.
  std::string text(const std::string& name, const std::string& other) const;
  // A whole number from 0 on; throws for any other text.
  std::optional<std::int64_t> number(const std::string& name) const;
  // The same, and unset is wrong too.
  std::int64_t needed(const std::string& name) const;

 private:
  const config::Environment& environment_;
};

}  // namespace hasten
