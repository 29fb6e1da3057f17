#include "commands/config_options.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/default_file.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe(config::OptionTable& table, ConfigOptions& options,
              std::initializer_list<std::string_view> names) {
  config::Describer d(table, options);
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  d("config_file", &ConfigOptions::config_file, "Set the file to read or write.");
  if (has("mixed_precision"))
    d("mixed_precision", &ConfigOptions::mixed_precision, "Set mixed_precision in the file.")
        .not_yet_choices({"fp8"});
  if (has("overwrite"))
    d("overwrite", &ConfigOptions::overwrite, "Replace a file that exists already.");
  if (has("json")) d("json", &ConfigOptions::json, "Print JSON.");
}

// Reads the flags, and HASTEN_CONFIG_FILE if they name no file.
void read(ConfigCommand& run, const std::vector<std::string>& words,
          std::initializer_list<std::string_view> names, const config::Environment& environment) {
  config::OptionTable table;
  describe(table, run.options, names);
  std::vector<std::string> notices;
  config::resolve(table, {config::read_flags(table, words)}, notices);
  run.path = run.options.config_file;
  const auto variable = environment.find("HASTEN_CONFIG_FILE");
  if (run.path.empty() && variable != environment.end())
    run.path = split(variable->second, ',').front();
}

bool asks_for_help(const std::vector<std::string>& words) {
  return std::find(words.begin(), words.end(), "--help") != words.end() ||
         std::find(words.begin(), words.end(), "-h") != words.end();
}

ConfigAction take_action(std::vector<std::string>& words) {
  if (words.empty() || starts_with(words.front(), "-")) return ConfigAction::ask;
  const std::string word = words.front();
  words.erase(words.begin());
  if (word == "default") return ConfigAction::write_default;
  if (word == "update") return ConfigAction::update;
  const auto near = nearest(word, {"default", "update"});
  throw ConfigError("config.unexpected-argument",
                    {.what = "unexpected argument '" + word + "'",
                     .expected = "default, update or no argument",
                     .hint = near ? "did you mean hasten config " + *near + "?" : ""});
}

}  // namespace

ConfigCommand parse_config(const std::vector<std::string>& words,
                           const config::Environment& environment) {
  ConfigCommand run;
  run.help = asks_for_help(words);
  if (run.help) return run;
  std::vector<std::string> flags = words;
  run.action = take_action(flags);
  switch (run.action) {
    case ConfigAction::ask:
      read(run, flags, {"overwrite"}, environment);
      break;
    case ConfigAction::write_default:
      read(run, flags, {"mixed_precision", "overwrite"}, environment);
      break;
    case ConfigAction::update:
      read(run, flags, {}, environment);
      if (run.path.empty()) run.path = config::find_default_file(environment);
      break;
  }
  if (run.path.empty() && run.action != ConfigAction::update)
    run.path = config::default_file(environment);
  if (!run.path.empty()) return run;
  throw ConfigError("config.missing", {.what = run.action == ConfigAction::update
                                                   ? "there is no configuration file to update"
                                                   : "no folder for the file: HOME is not set",
                                       .hint = "name one with --config_file FILE"});
}

std::string config_help() {
  return "usage: hasten config         [--config_file FILE] [--overwrite]\n"
         "       hasten config default [--config_file FILE] [--overwrite] [--mixed_precision "
         "no|fp16|bf16]\n"
         "       hasten config update  [--config_file FILE]\n\n"
         "Writes the file that `hasten launch` and `accelerate launch` read if no other file is\n"
         "named. `hasten config` asks questions, `hasten config default` writes a file that fits\n"
         "this machine, and `hasten config update` updates an older file of Accelerate and keeps\n"
         "the old one as FILE.bak.\n\n"
         "  --config_file FILE    Write this file: YAML, or JSON if its name ends in .json.\n"
         "                        [HASTEN_CONFIG_FILE, else default_config.yaml in $HASTEN_HOME,\n"
         "                        $XDG_CACHE_HOME/hasten or ~/.cache/hasten; update: the file\n"
         "                        that launch would read]\n"
         "  --mixed_precision P   Set the precision: no, fp16 or bf16. [no]\n"
         "  --overwrite           Replace a file that exists already.\n";
}

ConfigCommand parse_env(const std::vector<std::string>& words,
                        const config::Environment& environment) {
  ConfigCommand run;
  run.help = asks_for_help(words);
  if (run.help) return run;
  read(run, words, {"json"}, environment);
  if (run.path.empty()) run.path = config::find_default_file(environment);
  return run;
}

std::string env_help() {
  return "usage: hasten env [--config_file FILE] [--json]\n\n"
         "Prints what a problem report should say about this machine, as lines to copy: versions,\n"
         "CPU, memory, GPUs, network, launchers, variables, and the configuration file that\n"
         "launch would read. It loads no library and shows no variable that could hold a "
         "secret.\n\n"
         "  --config_file FILE   Show this file instead of the one that launch would read.\n"
         "  --json               Print the same as JSON.\n";
}

}  // namespace hasten
