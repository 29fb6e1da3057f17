// File: options/variable_of.h (internal)
// Looks up variables in an Environment.
//
//   config::variable_of(environment, "HF_HOME");     // an empty text if it is not set
//   config::expand_home(environment, "~/runs");      // "/root/runs"
//
// Thread rule: pure functions. They throw only if memory runs out.
#pragma once

#include <string>

#include "hasten/base/text.h"
#include "hasten/options/detail/environment.h"

namespace hasten::config {

// Returns the variable's value, or an empty text.
inline std::string variable_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Replaces a leading ~ with the home folder.
inline std::string expand_home(const Environment& environment, const std::string& path) {
  const std::string home = variable_of(environment, "HOME");
  if (home.empty() || (path != "~" && !starts_with(path, "~/"))) return path;
  return home + path.substr(1);
}

}  // namespace hasten::config
