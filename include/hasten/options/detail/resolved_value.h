// File: hasten/options/detail/resolved_value.h
// The values of options after all sources are read, each with the place it came from.
//
//   for (const config::ResolvedValue& value : values)
//     std::cout << value.name << ": " << config::to_text(value.value) << '\n';
//   std::cerr << config::resolved_text(values, config::ValueFilter::changed);
//
// Thread rule: values and pure functions. They throw only if memory runs out.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/kwargs.h"

namespace hasten::config {

// The value of an option, or the value that a source sets. Sources set texts, lists and maps;
// monostate means unset.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                           std::vector<std::string>, Kwargs>;

// The source of a value. `where` is "--seed", "HASTEN_SEED" or "train.yaml:3"; for `derived` it is
// the option from which the value is derived.
struct Origin {
  enum class Source { default_value, derived, file, environment, flag };
  Source source = Source::default_value;
  std::string where = {};
};
HASTEN_API std::string to_text(const Origin& origin);

// Formats a value as it is written on a command line: "3e-05", "true", "a,b", "k=v,k2=v2"; "unset"
// if it is empty.
HASTEN_API std::string to_text(const Value& value);

// The value of one option, and where it came from.
struct ResolvedValue {
  std::string name = {};
  Value value = {};
  Origin origin = {};
  Value default_value = {};
};
// All values, or only those that differ from their defaults.
enum class ValueFilter { changed, all };
// Formats one line per value, `name: value  # origin`. The text is valid YAML, which read_yaml()
// reads back to the same values.
HASTEN_API std::string resolved_text(const std::vector<ResolvedValue>& values, ValueFilter filter);

}  // namespace hasten::config
