// File: commands/weights_options.h (internal)
// The options of `hasten convert` and `hasten merge-weights`, which write weights as safetensors.
//
//   const ConvertCommand run = parse_convert({argv + 2, argv + argc});
//   run.from;     // the first of two arguments that are no options
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and pure functions.
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

struct MergeWeightsCommand {
  bool help = false;
  std::string folder, target;
  std::optional<std::int64_t> max_shard_size;  // in bytes
};

// Each parses the arguments after its command.
HASTEN_INTERNAL_API ConvertCommand parse_convert(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API MergeWeightsCommand
parse_merge_weights(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string convert_help(int width);
HASTEN_INTERNAL_API std::string merge_weights_help(int width);

}  // namespace hasten
