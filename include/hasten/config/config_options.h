// File: hasten/config/config_options.h
// The options of `hasten config`, `hasten config default` and `hasten config update`, with
// Accelerate's names, and of `hasten env`.
//
//   const auto run = parse_config(argc - 2, argv + 2, config::whole_environment());
//   run.action, run.path      // what to do, and with which file
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and functions that look for
// files only.
#pragma once

#include <string>

#include "hasten/config/launch_options.h"
#include "hasten/config/sources.h"

namespace hasten {

enum class ConfigAction { ask, write_default, update };

struct ConfigOptions {
  std::string config_file;  // empty: see path
  LaunchPrecision mixed_precision = LaunchPrecision::no;
  bool overwrite = false;  // a file that is there already
  bool json = false;       // env alone: JSON instead of lines
};

struct ConfigCommand {
  bool help = false;
  ConfigAction action = ConfigAction::ask;
  ConfigOptions options;
  // config_file, else HASTEN_CONFIG_FILE, else the default one; for update the one that launch
  // would find.
  std::string path;
};

// `argv` are the words after the subcommand.
ConfigCommand parse_config(int argc, const char* const* argv,
                           const config::Environment& environment);
std::string config_help();

// The same for `hasten env`: `path` is the file that launch would read, and may be empty.
ConfigCommand parse_env(int argc, const char* const* argv, const config::Environment& environment);
std::string env_help();

}  // namespace hasten
