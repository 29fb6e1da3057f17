// File: commands/resolve.h (internal)
// Resolves the options of `hasten train` and `hasten launch` from flags that have been read, the
// environment and configuration files. `hasten estimate` and `hasten test` use these functions too,
// and have additional options.
//
//   const auto flags = config::read_flags(table, arguments);
//   const TrainConfiguration run = resolve_train(flags, config::process_environment());
//
// Throws ConfigError and IoError like parse_train and parse_launch. Thread rule: reads
// configuration files only.
#pragma once

#include <string>
#include <vector>

#include "hasten/options/launch_options.h"
#include "hasten/options/train_options.h"
#include "options/sources.h"

namespace hasten {

TrainConfiguration resolve_train(const std::vector<config::Assignment>& flags,
                                 const config::Environment& environment);

// The arguments after `launch`, read by a table that has launch's options.
struct LaunchCommandLine {
  bool help = false;
  std::vector<config::Assignment> flags;
  std::vector<std::string> program;  // With its arguments.
};
LaunchCommandLine read_launch_command_line(const config::OptionTable& table,
                                           const std::vector<std::string>& arguments);

LaunchConfiguration resolve_launch(const std::vector<config::Assignment>& flags,
                                   const std::vector<std::string>& program,
                                   const config::Environment& environment);

}  // namespace hasten
