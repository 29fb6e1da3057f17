// File: base/did_you_mean.h (internal)
// The hint of an error that names a misspelt word.
//
//   did_you_mean(nearest(word, names))                    // "did you mean adamw?", or ""
//   did_you_mean(nearest(word, names), "see --help")      // "see --help" if no name is near
//   did_you_mean(nearest(word, names), "", in_quotes)     // did you mean "labels"?
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/text.h"

namespace hasten {

// `shown` converts the name to the form in which a user writes it.
template <class Shown = std::identity>
std::string did_you_mean(const std::optional<std::string>& name, const std::string& otherwise = "",
                         Shown shown = {}) {
  return name ? "did you mean " + std::string(shown(*name)) + "?" : otherwise;
}

// Suggests all of these names.
inline std::string did_you_mean(const std::vector<std::string>& names) {
  return did_you_mean(names.empty() ? std::nullopt : std::optional(join(names, " or ")));
}

inline std::string in_quotes(const std::string& name) { return '"' + name + '"'; }

}  // namespace hasten
