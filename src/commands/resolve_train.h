// File: commands/resolve_train.h (internal)
// Resolves the options of `hasten train` from flags that are parsed already, the environment and
// the files that they name. `hasten estimate` has options of its own besides and uses it too.
//
//   const auto flags = config::read_flags(table, words);
//   const TrainConfiguration run = resolve_train(flags, config::process_environment());
//
// Throws ConfigError and IoError like parse_train. Thread rule: reads configuration files only.
#pragma once

#include <vector>

#include "hasten/options/train_options.h"
#include "options/sources.h"

namespace hasten {

TrainConfiguration resolve_train(const std::vector<config::Assignment>& flags,
                                 const config::Environment& environment);

}  // namespace hasten
