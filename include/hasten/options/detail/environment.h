// File: hasten/options/detail/environment.h
// The environment variables of this process as a value, so that functions which read variables can
// be tested without changing the process.
//
//   const config::Environment environment = config::process_environment();
//   const auto flag = config::environment_flag(environment, "HASTEN_ENCRYPT");   // nullopt: unset
//
// Thread rule: the functions read the process's environment, which no other thread may change at
// the same time.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "hasten/base/detail/export.h"

namespace hasten::config {

using Environment = std::map<std::string, std::string>;

// The HASTEN_* variables of this process.
HASTEN_API Environment process_environment();
// All variables of this process, including the variables of launchers and schedulers.
HASTEN_API Environment whole_environment();
// The flag in a variable, with Accelerate's words: y, yes, t, true, on, 1 and n, no, f, false, off,
// 0, in any letter case. An empty variable counts as unset. Throws "config.bad-value" for any other
// text.
HASTEN_API std::optional<bool> environment_flag(const Environment& environment,
                                                const std::string& name);

}  // namespace hasten::config
