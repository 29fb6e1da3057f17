// File: commands/merge_weights_options.h (internal)
// The options of `hasten merge-weights`.
//
//   const MergeWeightsCommand run = parse_merge_weights({argv + 2, argv + argc});
//   run.folder;     // the first of two arguments before the options
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and a pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct MergeWeightsCommand {
  bool help = false;
  std::string folder, target;
  std::optional<std::int64_t> max_shard_size;  // in bytes
};

// Parses the arguments after `merge-weights`.
HASTEN_INTERNAL_API MergeWeightsCommand
parse_merge_weights(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string merge_weights_help(int width);

}  // namespace hasten
