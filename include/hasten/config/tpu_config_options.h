// File: hasten/config/tpu_config_options.h
// The options of `hasten tpu-config`, with Accelerate's names: commands for all machines of a TPU
// pod, over gcloud's ssh. What no flag says is read from the file of `hasten launch`.
//
//   hasten tpu-config --tpu_name mine --tpu_zone us-central2-b --command "hostname" --dry_run
//
// Needs no torch. Throws ConfigError "config.*", IoError. Thread rule: values and functions that
// read files only.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten {

struct TpuConfigOptions {
  std::string config_file;  // empty: HASTEN_CONFIG_FILE, else the one that launch would find
  std::string tpu_name;
  std::string tpu_zone;
  std::string command_file;           // a script's text, or
  std::vector<std::string> commands;  // one after the other (--command)
  bool use_alpha = false;             // gcloud alpha
  bool dry_run = false;               // print the line, run nothing (--debug)
};

struct TpuConfigCommand {
  bool help = false;
  TpuConfigOptions options;
  std::string command;  // for each machine's shell: the folder, then the commands or the script
};

// `argv` are the words after the subcommand.
TpuConfigCommand parse_tpu_config(int argc, const char* const* argv,
                                  const config::Environment& environment);
std::string tpu_config_help(int width);

// The words of the line that runs the command on all machines, the first being gcloud.
std::vector<std::string> gcloud_words(const TpuConfigCommand& run);

}  // namespace hasten
