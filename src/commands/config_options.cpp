#include "commands/config_options.h"

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/default_file.h"
#include "options/help.h"

namespace hasten {
namespace {

// The options of ConfigOptions that an action has.
struct ConfigNames {
  bool precision = true;
  bool overwrite = true;
};

ConfigNames names_for(ConfigAction action) {
  return {.precision = action == ConfigAction::write_default,
          .overwrite = action != ConfigAction::update};
}

void describe_config(config::OptionTable& table, ConfigOptions& options, ConfigNames names) {
  config::Describer d(table, options);
  d("config_file", &ConfigOptions::config_file,
    "Write this file: YAML, or JSON if its name ends in .json. If unset, HASTEN_CONFIG_FILE, or "
    "else default_config.yaml in $HASTEN_HOME, $XDG_CACHE_HOME/hasten or ~/.cache/hasten; update "
    "rewrites the file that launch would read.");
  if (names.precision)
    d("mixed_precision", &ConfigOptions::mixed_precision,
      "Set the precision (only hasten config default).")
        .unimplemented_choices({"fp8"});
  if (names.overwrite)
    d("overwrite", &ConfigOptions::overwrite,
      "Replace a file that exists already (not with update).");
}

void describe_env(config::OptionTable& table, EnvCommand& run) {
  config::Describer d(table, run);
  d("config_file", &EnvCommand::config_file,
    "Show this file. If unset, HASTEN_CONFIG_FILE, or else the file that launch would read.");
  d("json", &EnvCommand::json, "Print the same as JSON.");
}

ConfigAction take_action(std::vector<std::string>& arguments) {
  if (arguments.empty() || starts_with(arguments.front(), "-")) return ConfigAction::ask;
  const std::string argument = arguments.front();
  arguments.erase(arguments.begin());
  if (argument == "default") return ConfigAction::write_default;
  if (argument == "update") return ConfigAction::update;
  throw ConfigError(
      "config.unexpected-argument",
      {.what = "unexpected argument '" + argument + "'",
       .expected = "default, update or no argument",
       .hint = did_you_mean(nearest(argument, {"default", "update"}), "",
                            [](const std::string& name) { return "hasten config " + name; })});
}

}  // namespace

ConfigCommand parse_config(const std::vector<std::string>& arguments,
                           const config::Environment& environment) {
  ConfigCommand run;
  run.help = config::asks_for_help(arguments);
  if (run.help) return run;
  std::vector<std::string> flags = arguments;
  run.action = take_action(flags);
  config::OptionTable table;
  describe_config(table, run.options, names_for(run.action));
  config::apply_flags(table, config::read_flags(table, flags));

  const bool reads = run.action == ConfigAction::update;
  run.path = reads ? config::file_to_read(run.options.config_file, environment)
                   : config::file_to_write(run.options.config_file, environment);
  if (run.path.empty())
    config::throw_missing(reads ? "there is no configuration file to update"
                                : "no folder for the file: HOME is not set",
                          "name one with --config_file FILE");
  return run;
}

std::string config_help(int width) {
  ConfigOptions options;
  config::OptionTable table;
  describe_config(table, options, {});
  return "usage: hasten config         [--NAME VALUE ...]\n"
         "       hasten config default [--NAME VALUE ...]\n"
         "       hasten config update  [--NAME VALUE ...]\n\n"
         "Writes the file that `hasten launch` and `accelerate launch` read if no other file is\n"
         "named. `hasten config` asks questions, `hasten config default` writes a file that fits\n"
         "this machine, and `hasten config update` updates an older file of Accelerate and keeps\n"
         "the old one as FILE.bak.\n\n" +
         config::help_text(table, width);
}

EnvCommand parse_env(const std::vector<std::string>& arguments,
                     const config::Environment& environment) {
  EnvCommand run;
  run.help = config::asks_for_help(arguments);
  if (run.help) return run;
  config::OptionTable table;
  describe_env(table, run);
  config::apply_flags(table, config::read_flags(table, arguments));
  run.path = config::file_to_read(run.config_file, environment);
  return run;
}

std::string env_help(int width) {
  EnvCommand run;
  config::OptionTable table;
  describe_env(table, run);
  return "usage: hasten env [--NAME VALUE ...]\n\n"
         "Prints what a problem report should say about this machine, as lines to copy: versions,\n"
         "CPU, memory, GPUs, network, launchers, variables, and the configuration file that\n"
         "launch would read. It loads no library and shows no variable that could hold a "
         "secret.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
