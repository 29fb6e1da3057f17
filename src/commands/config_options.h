// File: commands/config_options.h (internal)
// The options of `hasten config`, `hasten config default` and `hasten config update`, with the
// names of Accelerate, and of `hasten env`.
//
//   const ConfigCommand run = parse_config({argv + 2, argv + argc}, config::whole_environment());
//   run.action;      // ConfigAction::ask
//   run.path;        // the file to write
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values, and functions that only look
// for files.
#pragma once

#include <string>

#include "base/internal_api.h"
#include "hasten/options/launch_options.h"
#include "options/sources.h"

namespace hasten {

enum class ConfigAction { ask, write_default, update };

struct ConfigOptions {
  std::string config_file;  // As given. If it is empty, see ConfigCommand::path.
  Precision mixed_precision = Precision::no;
  bool overwrite = false;  // Replace a file that exists already.
};

struct ConfigCommand {
  bool help = false;
  ConfigAction action = ConfigAction::ask;
  ConfigOptions options;
  // config_file, otherwise HASTEN_CONFIG_FILE, otherwise config::default_file(). For `update`, the
  // last choice is the file that `hasten launch` would find.
  std::string path;
};

// Parses the arguments after `config` (`argv` without its first two elements).
HASTEN_INTERNAL_API ConfigCommand parse_config(const std::vector<std::string>& arguments,
                                               const config::Environment& environment);
HASTEN_INTERNAL_API std::string config_help(int width);

struct EnvCommand {
  bool help = false;
  std::string config_file;  // As given.
  bool json = false;        // Print JSON instead of lines.
  // config_file, otherwise HASTEN_CONFIG_FILE, otherwise the file that `hasten launch` would find;
  // empty if there is none.
  std::string path;
};

// Parses the arguments after `env`.
HASTEN_INTERNAL_API EnvCommand parse_env(const std::vector<std::string>& arguments,
                                         const config::Environment& environment);
HASTEN_INTERNAL_API std::string env_help(int width);

}  // namespace hasten
