// File: base/environment_variable.h (internal)
// Reads a variable of this process.
//
//   const std::string folder = environment_variable("VIRTUAL_ENV");
//
// Returns an empty text if the variable is not set. Thread rule: no other thread may change the
// environment at the same time.
#pragma once

#include <cstdlib>
#include <string>

namespace hasten {

inline std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace hasten
