// File: commands/convert_options.h (internal)
// The options of `hasten convert`.
//
//   const ConvertCommand run = parse_convert({argv + 2, argv + argc});
//   run.from;     // the first of two arguments before the options
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct ConvertCommand {
  bool help = false, allow_pickle = false;
  std::string from, to;
  std::optional<std::int64_t> max_shard_size;  // in bytes
};

// Parses the arguments after `convert`.
HASTEN_INTERNAL_API ConvertCommand parse_convert(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string convert_help(int width);

}  // namespace hasten
