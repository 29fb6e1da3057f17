// File: tpu/commands/tpu_config_options.h
// The options of `hasten tpu-config`, with Accelerate's names: commands for all machines of a TPU
// pod, run through gcloud's ssh. Options that no flag gives are read from the file of `hasten
// launch`.
//
//   $ hasten tpu-config --tpu_name mine --tpu_zone us-central2-b --command "hostname" --dry_run
//
// Needs no torch. Throws ConfigError "config.*", IoError "io.*". Thread rule: values, and functions
// that only read files.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

struct TpuConfigOptions {
  std::string config_file;  // If empty: HASTEN_CONFIG_FILE, else config::find_default_file().
  std::string tpu_name;
  std::string tpu_zone;
  std::string command_file;           // File with a script, instead of `commands`.
  std::vector<std::string> commands;  // Run one after the other (--command).
  bool use_alpha = false;             // gcloud alpha instead of gcloud.
  bool dry_run = false;               // Print the command line and run nothing (--debug).
};

struct TpuConfigCommand {
  bool help = false;
  TpuConfigOptions options;
  // The command for the shell of each machine. It changes to /usr/share, and then runs the commands
  // or the script.
  std::string command;
};

// Parses the arguments after `tpu-config`.
HASTEN_INTERNAL_API TpuConfigCommand parse_tpu_config(const std::vector<std::string>& arguments,
                                                      const config::Environment& environment);
HASTEN_INTERNAL_API std::string tpu_config_help(int width);

// Returns the command line that runs the command on all machines; the first argument is gcloud.
HASTEN_INTERNAL_API std::vector<std::string> gcloud_command(const TpuConfigCommand& run);

}  // namespace hasten
