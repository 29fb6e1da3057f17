// File: config/messages.h (internal)
// The errors that every source of options shares, so that a flag, a file and a variable are told
// the same.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// How a key is written where it stands: "--seed", "HASTEN_SEED", "seed".
std::string spelled(const Origin& origin, const std::string& key);
// "--seed", "HASTEN_SEED", "train.yaml:3: seed".
std::string located(const Origin& origin, const std::string& key);

// The closest name there is to a key, among the names and the habits of other programs ("lr",
// "epochs").
std::optional<std::string> suggestion(const OptionTable& table, const std::string& key);

[[noreturn]] void throw_unknown(const OptionTable& table, const std::string& key,
                                const Origin& origin);
[[noreturn]] void throw_not_supported(const std::string& what, const std::string& hint);

}  // namespace hasten::config
