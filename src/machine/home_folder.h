// File: machine/home_folder.h (internal)
// Finds the folders in which programs keep a user's files.
//
//   config::home_folder(environment, "HF_HOME", "huggingface");   // "/root/.cache/huggingface"
//
// Thread rule: pure functions. They throw only if memory runs out.
#pragma once

#include <string>

#include "hasten/options/detail/environment.h"
#include "options/variable_of.h"

namespace hasten::config {

// Returns $name if it is set, otherwise `folder` in the user's cache, or an empty string if neither
// XDG_CACHE_HOME nor HOME is set.
inline std::string home_folder(const Environment& environment, const std::string& name,
                               const std::string& folder) {
  const std::string own = variable_of(environment, name);
  if (!own.empty()) return expand_home(environment, own);
  const std::string cache = variable_of(environment, "XDG_CACHE_HOME");
  if (!cache.empty()) return expand_home(environment, cache) + "/" + folder;
  const std::string home = variable_of(environment, "HOME");
  return home.empty() ? "" : home + "/.cache/" + folder;
}

}  // namespace hasten::config
