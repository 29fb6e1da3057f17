#include "tpu/commands/tpu_config_options.h"

#include <algorithm>

#include "accelerate_file/accelerate_sections.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/options/launch_options.h"
#include "machine/default_file.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

// Accelerate runs the commands in this folder, which every user may read.
constexpr const char* kFolder = "cd /usr/share";

void describe_tpu_config(config::OptionTable& table, TpuConfigOptions& options) {
  config::Describer d(table, options);
  d("config_file", &TpuConfigOptions::config_file,
    "Read tpu_name and the other options from this file of hasten launch. If unset, the file that "
    "launch would read.");
  d("tpu_name", &TpuConfigOptions::tpu_name, "Set the name of the TPU.");
  d("tpu_zone", &TpuConfigOptions::tpu_zone, "Set the zone of the TPU.");
  d("command", &TpuConfigOptions::commands,
    "Run this command. Several commands, also of several --command, run one after the other.")
      .keep_commas();
  d("command_file", &TpuConfigOptions::command_file, "Run the commands of this file.");
  d("use_alpha", &TpuConfigOptions::use_alpha, "Call gcloud alpha instead of gcloud.");
  d("dry_run", &TpuConfigOptions::dry_run, "Print the command line and run nothing (--debug).")
      .former_name("debug");
  const char* const copied =
      "programs are not Python packages: copy yours and hasten with gcloud compute tpus tpu-vm scp "
      "--worker all";
  d.unimplemented<bool>("install_accelerate", copied);
  d.unimplemented<config::AnyText>("accelerate_version", copied, {"latest"});
}

std::vector<std::string> texts_in(const config::Value& value) {
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  return {config::to_text(value)};
}

// Takes the values that no flag sets from the file.
void fill_from_file(TpuConfigOptions& options, const std::string& file) {
  LaunchOptions launch;
  config::OptionTable table;
  describe(table, launch);
  const auto keys = config::read_option_file(file);
  config::check_accelerate_keys(table, keys);
  const bool flags_set_commands = !options.commands.empty() || !options.command_file.empty();
  for (const config::Assignment& key : keys) {
    if (!config::is_set(key.value)) continue;
    const auto take = [&](std::string& to) {
      if (to.empty()) to = config::to_text(key.value);
    };
    if (key.key == "tpu_name") take(options.tpu_name);
    if (key.key == "tpu_zone") take(options.tpu_zone);
    if (flags_set_commands) continue;
    if (key.key == "command_file") take(options.command_file);
    if (key.key == "commands") options.commands = texts_in(key.value);
  }
}

void check_name(const char* option, const std::string& name) {
  if (name.empty())
    config::throw_missing(str("no ", option),
                          str("set --", option, ", or ", option, " in a configuration file"));
  const bool plain = std::all_of(name.begin(), name.end(), [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
  });
  if (plain && name.front() != '-') return;
  throw ConfigError(
      "config.bad-value",
      {.what = option, .got = "'" + name + "'", .expected = "letters, digits and _-."});
}

void check_tpu_config(const TpuConfigOptions& options) {
  check_name("tpu_name", options.tpu_name);
  check_name("tpu_zone", options.tpu_zone);
  if (options.commands.empty() && options.command_file.empty())
    config::throw_missing("nothing to run on the machines",
                          "set --command COMMAND or --command_file FILE");
  if (!options.commands.empty() && !options.command_file.empty())
    config::throw_conflict("command and command_file are both set", "remove one of them");
  for (const std::string& command : options.commands) {
    if (!trim(command).empty()) continue;
    throw ConfigError("config.bad-value",
                      {.what = "command", .got = "''", .expected = "a command"});
  }
}

// A script is passed unchanged. Joining its lines would break it, because comments and blocks end
// with their lines.
std::string command_of(const TpuConfigOptions& options) {
  if (options.command_file.empty()) return str(kFolder, "; ", join(options.commands, "; "));
  const std::string script = read_file(options.command_file);
  if (script.find('\0') != std::string::npos)
    throw ConfigError("config.bad-value", {.what = "command_file " + options.command_file,
                                           .got = "a NUL byte",
                                           .expected = "a script"});
  if (trim(script).empty())
    config::throw_missing("nothing to run on the machines",
                          "write commands to " + options.command_file + ", which is empty");
  return str(kFolder, "\n", trim(script));
}

}  // namespace

TpuConfigCommand parse_tpu_config(const std::vector<std::string>& arguments,
                                  const config::Environment& environment) {
  TpuConfigCommand run;
  // After --command, -h belongs to the command.
  const auto command = std::find(arguments.begin(), arguments.end(), "--command");
  run.help = config::asks_for_help({arguments.begin(), command}) ||
             std::find(command, arguments.end(), "--help") != arguments.end();
  if (run.help) return run;
  config::OptionTable table;
  describe_tpu_config(table, run.options);
  config::apply_flags(table, config::read_flags(table, arguments));
  const std::string file = config::file_to_read(run.options.config_file, environment);
  if (!file.empty()) fill_from_file(run.options, file);
  check_tpu_config(run.options);
  run.command = command_of(run.options);
  return run;
}

std::string tpu_config_help(int width) {
  TpuConfigOptions options;
  config::OptionTable table;
  describe_tpu_config(table, options);
  return "usage: hasten tpu-config [--NAME VALUE ...]\n\n"
         "Runs commands on all machines of a TPU pod, over gcloud's ssh, in /usr/share. Use it to\n"
         "prepare the machines before `hasten launch --tpu` is started on each of them. The exit\n"
         "code is gcloud's.\n\n" +
         config::help_text(table, width);
}

std::vector<std::string> gcloud_command(const TpuConfigCommand& run) {
  std::vector<std::string> command = {"gcloud"};
  if (run.options.use_alpha) command.emplace_back("alpha");
  const std::vector<std::string> rest = {"compute",
                                         "tpus",
                                         "tpu-vm",
                                         "ssh",
                                         run.options.tpu_name,
                                         "--zone",
                                         run.options.tpu_zone,
                                         "--command",
                                         run.command,
                                         "--worker",
                                         "all"};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

}  // namespace hasten
