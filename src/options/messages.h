// File: options/messages.h (internal)
// Errors that all sources of options share, so that a flag, a file and a variable report the same
// problem in the same words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "options/sources.h"

namespace hasten::config {

// The key as its source writes it: "--seed", "HASTEN_SEED", "seed".
std::string key_as_written(const Origin& origin, const std::string& key);
// The key with its place: "--seed", "HASTEN_SEED", "train.yaml:3: seed".
std::string key_with_place(const Origin& origin, const std::string& key);

// Returns the known name that is closest to a key, or the one meant by a name from another program
// ("lr", "epochs"). Returns nothing if no name is close.
std::optional<std::string> suggestion(const OptionTable& table, const std::string& key);

[[noreturn]] void throw_unknown(const OptionTable& table, const std::string& key,
                                const Origin& origin);
// The errors for values that contradict each other and for a value that is missing. They are inline
// so that the fuzzers need not link the option engine.
[[noreturn]] inline void throw_conflict(const std::string& what, const std::string& hint) {
  throw ConfigError("config.contradiction", {.what = what, .hint = hint});
}
[[noreturn]] inline void throw_missing(const std::string& what, const std::string& hint) {
  throw ConfigError("config.missing", {.what = what, .hint = hint});
}
[[noreturn]] void throw_not_supported(const std::string& what, const std::string& hint);

}  // namespace hasten::config
