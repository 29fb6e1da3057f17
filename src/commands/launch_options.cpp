#include "hasten/options/launch_options.h"

#include <algorithm>
#include <set>

#include "accelerate_file/accelerate_sections.h"
#include "base/did_you_mean.h"
#include "commands/output_streams.h"
#include "commands/resolve.h"
#include "commands/torchrun_names.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/default_file.h"
#include "machine/token.h"
#include "options/help.h"
#include "options/sources.h"
#include "options/value.h"
#include "options/variable_of.h"
#include "tpu/commands/tpu_options.h"

namespace hasten {
namespace {

// Requires numbers that are separated by commas, without repetition.
void check_numbers(const std::string& option, const std::string& text) {
  std::set<std::string> seen;
  const auto throw_invalid = [&](const char* expected) {
    throw ConfigError("config.bad-value",
                      {.what = option, .got = "'" + text + "'", .expected = expected});
  };
  for (const std::string& number : split(text, ',')) {
    const bool is_number = !number.empty() && number.size() <= 6 &&
                           number.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) throw_invalid("numbers separated by commas, such as 0,1");
    // The launcher compares these numbers as texts.
    if (number.size() > 1 && number.front() == '0')
      throw_invalid("numbers without leading zeros, such as 0,1");
    if (!seen.insert(number).second) throw_invalid("each number once");
  }
}

void check_rendezvous(const Kwargs& conf) {
  const std::vector<std::string> seconds = {"join_timeout", "last_call_timeout",
                                            "keep_alive_timeout"};
  std::vector<std::string> known = seconds;
  known.push_back("same_program");
  for (const auto& [name, value] : conf.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw ConfigError(
          "config.unknown-key",
          {.what = "unknown key " + name + " in rdzv_conf",
           .hint = did_you_mean(nearest(name, known), "the keys are " + join(known, ", "))});
    }
    const bool is_time = name != "same_program";
    const bool good = is_time ? value.is_number() && value.number() > 0 && value.number() <= 1e7
                              : value.text() == "true" || value.text() == "false";
    if (good) continue;
    throw ConfigError("config.bad-value",
                      {.what = "rdzv_conf: " + name,
                       .got = "'" + value.text() + "'",
                       .expected = is_time ? "a number of seconds above 0" : "true or false"});
  }
}

// The token never comes from the command line, where other users would see it.
std::string resolve_token(const LaunchOptions& options, const Machines& machines,
                          const config::Environment& environment) {
  if (!options.token_file.empty()) return read_token_file(options.token_file);
  std::string token = config::variable_of(environment, kTokenVariable);
  if (!token.empty()) check_token(token, kTokenVariable);
  if (token.empty() && machines.has_several() && !options.slurm) {
    throw ConfigError(
        "config.missing",
        {.what = "the job's token is missing, and several machines need one",
         .hint = "create a file with (umask 077; openssl rand -hex 32 >token), copy it to all "
                 "machines and name it with --token_file, or set HASTEN_JOB_TOKEN to its text"});
  }
  return token;
}

// Output that is kept in files needs log_dir.
void check_streams(const LaunchOptions& options) {
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"tee", options.tee},
                                   {"redirects", options.redirects}}) {
    if (!parse_streams(name, text).any() || !options.log_dir.empty()) continue;
    throw ConfigError("config.missing",
                      {.what = str(name, " is ", text, ", but log_dir is not set"),
                       .expected = "a folder for the output files",
                       .hint = "set it, for example with --log_dir logs"});
  }
}

void check_launch(const LaunchOptions& options) {
  check_rendezvous(options.rdzv_conf);
  check_streams(options);
  if (options.gpu_ids != "all") check_numbers("gpu_ids", options.gpu_ids);
  if (!options.local_ranks_filter.empty())
    check_numbers("local_ranks_filter", options.local_ranks_filter);
  if (options.use_cpu && options.gpu_ids != "all") {
    throw ConfigError("config.contradiction", {.what = "gpu_ids selects GPUs, but use_cpu is set",
                                               .hint = "remove one of them"});
  }
}

std::vector<std::string> with_long_names(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) argument = config::to_hasten_name(argument);
  return arguments;
}

// Slurm's machines may have different GPUs and cores from the machine that writes the script.
void check_counted(bool counted, const LaunchOptions& options) {
  if (!counted || !options.slurm) return;
  throw ConfigError(
      "config.contradiction",
      {.what =
           "slurm with nproc_per_node gpu, cpu or auto, which count the devices of this machine",
       .hint = "set --nproc_per_node to a number"});
}

// Removes a file's machine_rank if a flag or a variable chooses a rendezvous that assigns ranks.
// `hasten config` and `accelerate config` write machine_rank: 0 into the file of a single machine,
// and with this rank every machine of the job would serve the others.
void remove_rank_of_file(config::OptionTable& table, const LaunchOptions& options) {
  using Source = config::Origin::Source;
  const auto source_of = [&](const char* name) { return table.find(name)->origin.source; };
  const auto is_chosen = [&](const char* name) {
    return source_of(name) == Source::flag || source_of(name) == Source::environment;
  };
  const bool assigns_ranks = options.rdzv_backend && is_chosen("rdzv_backend")
                                 ? *options.rdzv_backend == RendezvousBackend::c10d
                                 : !options.rdzv_endpoint.empty() && is_chosen("rdzv_endpoint");
  if (!assigns_ranks || source_of("machine_rank") != Source::file) return;
  config::Option& rank = *table.find("machine_rank");
  rank.set(rank.default_value);
  rank.origin = {};
}

struct LaunchFiles {
  std::vector<std::string> names;
  bool found = false;  // the file was found by default, not named by the user
};

// A flag overrides a variable, and the last flag counts. resolve() reports a wrong value.
bool forbids_files(const std::vector<config::Assignment>& flags,
                   const std::vector<config::Assignment>& variables) {
  for (const auto* source : {&flags, &variables}) {
    const auto last = std::find_if(source->rbegin(), source->rend(), [](const auto& assignment) {
      return assignment.key == "no_config_file";
    });
    if (last != source->rend())
      return config::parse_bool(config::to_text(last->value)).value_or(false);
  }
  return false;
}

LaunchFiles launch_files(const std::vector<config::Assignment>& flags,
                         const std::vector<config::Assignment>& variables,
                         const config::Environment& environment) {
  if (forbids_files(flags, variables)) return {};
  LaunchFiles files{.names = config::config_files(flags, variables)};
  if (!files.names.empty()) return files;
  const std::string file = config::find_default_file(environment);
  if (!file.empty()) files = {.names = {file}, .found = true};
  return files;
}

// Rethrows the error. If the cause may be a file that the user did not name, the hint says how to
// leave it out.
[[noreturn]] void rethrow(const ConfigError& error, const LaunchFiles& files) {
  const std::string& what = error.text().what;
  for (const char* named : {"--", "HASTEN_", "PET_"}) {
    if (!files.found || starts_with(what, named)) throw;
  }
  ErrorText text = error.text();
  const std::string& file = files.names.front();
  text.hint += str(text.hint.empty() ? "" : "; ", starts_with(what, file) ? "it" : file,
                   " was read because no configuration file was named; --no_config_file skips it");
  throw ConfigError(error.code(), text);
}

}  // namespace

LaunchCommandLine read_launch_command_line(const config::OptionTable& table,
                                           const std::vector<std::string>& arguments) {
  const auto at =
      static_cast<std::ptrdiff_t>(config::operand_index(table, with_long_names(arguments)));
  std::vector<std::string> own = with_long_names({arguments.begin(), arguments.begin() + at});
  LaunchCommandLine line{.help = config::asks_for_help(own),
                         .flags = {},
                         .program = {arguments.begin() + at, arguments.end()}};
  if (line.help) return line;
  std::erase(own, "--");
  line.flags = config::read_flags(table, own);
  return line;
}

LaunchConfiguration parse_launch(const std::vector<std::string>& arguments,
                                 const config::Environment& environment) {
  LaunchOptions described;
  config::OptionTable table;
  describe(table, described);
  const LaunchCommandLine line = read_launch_command_line(table, arguments);
  if (!line.help) return resolve_launch(line.flags, line.program, environment);
  LaunchConfiguration run;
  run.help = true;
  return run;
}

LaunchConfiguration resolve_launch(const std::vector<config::Assignment>& flags,
                                   const std::vector<std::string>& program,
                                   const config::Environment& environment) {
  LaunchConfiguration run;
  run.program = program;
  config::OptionTable table;
  describe(table, run.options);
  std::vector<std::string> others = config::internal_variables();
  // These two are options of `hasten launch`.
  for (const char* const option : {"HASTEN_NO_CONFIG_FILE", "HASTEN_ENCRYPT"})
    std::erase(others, option);
  const auto variables = config::read_environment(table, environment, others, run.notices);
  const LaunchFiles files = launch_files(flags, variables, environment);
  if (files.found) {
    run.notices.push_back(
        files.names.front() +
        " is read because no configuration file is named (--no_config_file skips it)");
  }
  try {
    std::vector<std::vector<config::Assignment>> sources;
    for (const std::string& file : files.names) sources.push_back(config::read_option_file(file));
    config::remove_accelerate_keys(table, sources, run.notices);
    for (const auto& source : {config::torchrun_variables(environment), variables, flags})
      sources.push_back(source);
    config::remove_overridden_synonyms(sources);
    bool counted = false;
    for (auto& source : sources) counted |= config::resolve_process_count(source);
    config::resolve(table, sources, run.notices);
    remove_rank_of_file(table, run.options);
    check_counted(counted, run.options);
    config::check_limits(table);
    config::check_status(table, run.notices);
    config::resolve_tpu_options(table, run.options, environment, run.notices);
    check_launch(run.options);
    run.machines = resolve_machines(run.options);
    run.token = resolve_token(run.options, run.machines, environment);
  } catch (const ConfigError& error) {
    rethrow(error, files);
  }
  if (run.program.empty()) {
    throw ConfigError(
        "config.missing",
        {.what = "no program to start",
         .hint = "name one after the options: hasten launch -n 4 ./train --epochs 3"});
  }
  run.values = config::snapshot(table);
  return run;
}

}  // namespace hasten
