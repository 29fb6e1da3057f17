#include "hasten/options/launch_options.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "accelerate_file/accelerate_keys.h"
#include "accelerate_file/accelerate_sections.h"
#include "commands/streams.h"
#include "commands/torchrun_names.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/default_file.h"
#include "machine/token.h"
#include "options/help.h"
#include "options/sources.h"
#include "tpu/commands/tpu_options.h"

namespace hasten {
namespace {

using config::AnyText;

// Names in Accelerate's files and flags that need an engine which hasten does not have.
void describe_unsupported(config::Describer<LaunchOptions>& d) {
  for (const char* name : {"mpirun_config", "mpirun_hostfile"})
    d.not_yet<AnyText>(name,
                       "hasten launch starts the processes itself; to use mpirun, start the "
                       "program with mpirun directly");
  for (const char* name :
       {"fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config"})
    d.not_yet<AnyText>(name, "each process holds the whole model");
  d.not_yet<AnyText>("fp8_config", "use mixed_precision bf16");
  for (const char* name :
       {"use_fsdp", "use_deepspeed", "use_megatron_lm", "use_parallelism_config"})
    d.not_yet<bool>(name, "each process holds the whole model");
  d.not_yet<AnyText>("tpu_vm", config::kOverSshReason);
  d.not_yet<bool>("tpu_use_cluster", config::kOverSshReason);
}

void describe_ignored(config::Describer<LaunchOptions>& d) {
  d.no_effect<AnyText>("compute_environment", "processes always start on this machine");
  d.no_effect<AnyText>("main_training_function", "a program has its own main function");
  d.no_effect<bool>("same_network", "machines meet at main_process_ip or rdzv_endpoint", true);
  d.no_effect<AnyText>("role", "all processes have the same role");
  d.no_effect<double>("monitor_interval", "the operating system reports when a process ends", 0.1);
  d.no_effect<bool>("multi_gpu", "it follows from num_processes");
  d.no_effect<bool>("no_python", "programs are started directly, without Python");
  d.no_effect<AnyText>("dynamo_config", "programs are compiled before they run");
  for (const char* name : {"tpu_name", "tpu_zone", "commands", "command_file"})
    d.no_effect<AnyText>(name, "only hasten tpu-config uses it");
  d.no_effect<bool>("tpu_use_sudo", config::kSudoReason);
}

// Requires numbers with commas, each once.
void check_numbers(const std::string& option, const std::string& text) {
  std::vector<std::string> seen;
  std::string word;
  const auto throw_invalid = [&](const char* expected) {
    throw ConfigError("config.bad-value",
                      {.what = option, .got = "'" + text + "'", .expected = expected});
  };
  for (const char letter : text + ",") {
    if (letter != ',') {
      if (letter < '0' || letter > '9') throw_invalid("numbers separated by commas, such as 0,1");
      word += letter;
      continue;
    }
    if (word.empty() || word.size() > 6) throw_invalid("numbers separated by commas, such as 0,1");
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) throw_invalid("each number once");
    seen.push_back(word);
    word.clear();
  }
}

void check_rendezvous(const Kwargs& conf) {
  const std::vector<std::string> seconds = {"join_timeout", "last_call_timeout",
                                            "keep_alive_timeout"};
  std::vector<std::string> known = seconds;
  known.push_back("same_program");
  for (const auto& [name, value] : conf.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = nearest(name, known);
      throw ConfigError("config.unknown-key", {.what = "unknown key " + name + " in rdzv_conf",
                                               .hint = near ? "did you mean " + *near + "?"
                                                            : "the keys are " + join(known, ", ")});
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
  const auto variable = environment.find(kTokenVariable);
  if (!options.token_file.empty()) return read_token_file(options.token_file);
  std::string token = variable == environment.end() ? "" : variable->second;
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

void validate(const LaunchOptions& options) {
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

// Returns the position of the program: the first word that is no option and no option's value.
std::size_t program_index(const config::OptionTable& table, const std::vector<std::string>& words) {
  std::size_t i = 0;
  while (i < words.size()) {
    const std::string& word = words[i];
    if (word == "--") return i + 1;
    if (!starts_with(word, "-")) return i;
    ++i;
    if (word.find('=') != std::string::npos) continue;
    const std::string name =
        word.substr(word.find_first_not_of('-') == std::string::npos ? word.size()
                                                                     : word.find_first_not_of('-'));
    if (i < words.size() && config::takes_word(table.find(name), words[i])) ++i;
  }
  return std::min(i, words.size());
}

// Renames those of Accelerate's flags that have another name in its files.
std::string with_name_in_files(const std::string& word) {
  static const std::map<std::string, std::string> names = {
      {"--env", "--tpu_env"},
      {"--vm", "--tpu_vm"},
      {"--tpu_cluster", "--tpu_use_cluster"},
      {"--no_tpu_cluster", "--no_tpu_use_cluster"}};
  const std::size_t end = std::min(word.find('='), word.size());
  std::string name = word.substr(0, end);
  std::replace(name.begin() + std::min<std::ptrdiff_t>(2, std::ssize(name)), name.end(), '-', '_');
  const auto found = names.find(name);
  return found == names.end() ? word : found->second + word.substr(end);
}

// Replaces torchrun's names, and short names that other launchers use, by the full names.
std::vector<std::string> with_long_names(std::vector<std::string> words) {
  for (std::string& word : words) {
    word = with_name_in_files(config::to_hasten_name(word));
    if (word == "-t") word = "--tee";
    if (word == "-r") word = "--redirects";
    if (word == "-n" || word == "-np") word = "--num_processes";
    if (word == "-q") word = "--quiet";
    if (word == "--cpu") word = "--use_cpu";
    if (word == "-h") word = "--help";
  }
  return words;
}

// Slurm's machines may differ in GPUs and cores from the machine that writes the script.
void check_counted(bool counted, const LaunchOptions& options) {
  if (!counted || !options.slurm) return;
  throw ConfigError(
      "config.contradiction",
      {.what =
           "slurm with nproc_per_node gpu, cpu or auto, which count the devices of this machine",
       .hint = "set --nproc_per_node to a number"});
}

struct LaunchFiles {
  std::vector<std::string> names;
  bool found = false;  // the file was found; the user named none
};

LaunchFiles launch_files(const std::vector<config::Assignment>& flags,
                         const std::vector<config::Assignment>& variables,
                         const config::Environment& environment) {
  LaunchOptions asked;
  config::OptionTable table;
  describe(table, asked);
  std::vector<config::Assignment> only;
  for (const auto& source : {variables, flags}) {
    for (const config::Assignment& assignment : source) {
      if (assignment.key == "no_config_file") only.push_back(assignment);
    }
  }
  std::vector<std::string> notices;
  config::resolve(table, {only}, notices);
  LaunchFiles files{.names = config::config_files(flags, variables)};
  if (asked.no_config_file) return {};
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

void describe(config::OptionTable& table, LaunchOptions& options) {
  config::Describer d(table, options);
  d.group("Command");
  d("config_file", &LaunchOptions::config_file,
    "Read options from this YAML or JSON file; a file of Accelerate works too. If several files "
    "are named, later ones override earlier ones.");
  d("no_config_file", &LaunchOptions::no_config_file,
    "Read no configuration file, not even the default one (that of hasten, otherwise that of "
    "Accelerate).");
  d("dry_run", &LaunchOptions::dry_run,
    "Print the settings and the command and environment of each process, and start nothing.");
  d.group("Processes");
  d("num_processes", &LaunchOptions::num_processes,
    "Start this many processes on all machines together (-n). If unset, one for each TPU chip or "
    "GPU, or one if there is neither.")
      .at_least(1)
      .at_most(1 << 20);
  d("nproc_per_node", &LaunchOptions::nproc_per_node,
    "Start this many processes on each machine: a number, or gpu, cpu or auto to count the devices "
    "of the machine.")
      .at_least(1)
      .at_most(4096);
  d("use_cpu", &LaunchOptions::use_cpu, "Use the CPU even if there are GPUs (--cpu).");
  d("gpu_ids", &LaunchOptions::gpu_ids,
    "Make only these GPUs visible to the processes: all, or numbers separated by commas.");
  d("num_cpu_threads_per_process", &LaunchOptions::num_cpu_threads_per_process,
    "Set OMP_NUM_THREADS of each process. If unset, it is cores / processes, unless the variable "
    "is set already.")
      .at_least(1);
  d("enable_cpu_affinity", &LaunchOptions::enable_cpu_affinity,
    "Bind each process to its own cores.");
  d("mixed_precision", &LaunchOptions::mixed_precision,
    "Set the precision of each Accelerator that does not set its own.")
      .not_yet_choices({"fp8"});
  d("distributed_type", &LaunchOptions::distributed_type,
    "Accept this key of Accelerate's files. XLA turns on tpu; other values have no effect, because "
    "hasten derives the type from the other options.")
      .alias("tpu", "XLA")
      .not_yet_choices({"FSDP", "DEEPSPEED", "MEGATRON_LM", "TP", "MULTI_XPU", "MULTI_NPU",
                        "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "MULTI_NEURON"});
  d("debug", &LaunchOptions::debug, "Check collectives before they run.");
  config::describe_tpus(d);
  d.group("Machines");
  d("num_machines", &LaunchOptions::num_machines, "Run on this many machines. If unset, 1.")
      .at_least(1)
      .at_most(4096);
  d("nnodes", &LaunchOptions::nnodes,
    "Set the number of machines in the form of torchrun: 2, or 2:4 for a range.");
  d("standalone", &LaunchOptions::standalone,
    "Run on one machine, as torchrun does with this option.");
  d("machine_rank", &LaunchOptions::machine_rank, "Set the rank of this machine, counted from 0.")
      .at_least(0);
  d("main_process_ip", &LaunchOptions::main_process_ip,
    "Set the address of machine 0, where all machines meet.");
  d("main_process_port", &LaunchOptions::main_process_port,
    "Set the port at that address. If unset, 29500. With one machine this is MASTER_PORT, and "
    "unset or 0 selects a free port.")
      .at_least(0)
      .at_most(65535);
  d("rdzv_endpoint", &LaunchOptions::rdzv_endpoint,
    "Set the HOST:PORT where all machines meet. The machine with that address serves the others "
    "and assigns the ranks.");
  d("rdzv_backend", &LaunchOptions::rdzv_backend,
    "Select how machines get their ranks: static uses machine_rank, c10d assigns them. If unset, "
    "c10d with rdzv_endpoint or a range of machines, otherwise static.");
  d("rdzv_id", &LaunchOptions::rdzv_id, "Set the name of the job, the same on all machines.");
  d("rdzv_conf", &LaunchOptions::rdzv_conf,
    "Change the settings of the rendezvous: join_timeout=600, last_call_timeout=30, "
    "keep_alive_timeout=30 (seconds), same_program=true.");
  d("local_addr", &LaunchOptions::local_addr,
    "Set the address by which the other machines reach this one. If unset, the address that they "
    "see.");
  d("token_file", &LaunchOptions::token_file,
    "Read the job's token from this file, the same on all machines. If unset, HASTEN_JOB_TOKEN is "
    "used.");
  d("encrypt", &LaunchOptions::encrypt,
    "Encrypt the tensors that are sent between machines, except those that NCCL sends. If unset, "
    "they are encrypted unless the program decides otherwise.");
  d.group("Supervision");
  d("max_restarts", &LaunchOptions::max_restarts,
    "Restart all processes up to this many times after one has failed.")
      .at_least(0);
  d("grace_period", &LaunchOptions::grace_period,
    "Wait this many seconds after a stop signal before processes are killed.")
      .at_least(0);
  d.group("Output");
  d("log_dir", &LaunchOptions::log_dir,
    "Write the output of each attempt and process to this folder.");
  d("tee", &LaunchOptions::tee,
    "Show these streams and also write them to log_dir (-t): 0 none, 1 output, 2 errors, 3 both; "
    "for all processes, or for each local rank, such as 0:3,1:1.");
  d("redirects", &LaunchOptions::redirects,
    "Write these streams to log_dir without showing them (-r), in the same form.");
  d("local_ranks_filter", &LaunchOptions::local_ranks_filter,
    "Show only the output of these local ranks, separated by commas. If unset, all.");
  d("quiet", &LaunchOptions::quiet, "Print only the launcher's errors (-q).");
  d.group("Slurm");
  d("slurm", &LaunchOptions::slurm,
    "Print a script for sbatch that starts PROGRAM with these options, and submit nothing.");
  d("slurm_time", &LaunchOptions::slurm_time,
    "Limit the job to this time, such as 1-12:00:00. If unset, the partition's limit applies.");
  d("slurm_partition", &LaunchOptions::slurm_partition,
    "Run in this partition. If unset, in the cluster's default partition.");
  d("slurm_account", &LaunchOptions::slurm_account, "Charge this account.");
  d("slurm_signal", &LaunchOptions::slurm_signal,
    "Let Slurm send this signal before the time is up, such as USR1@120, for a program that "
    "handles it. If unset, none.");
  d("slurm_gpus_per_node", &LaunchOptions::slurm_gpus_per_node,
    "Request this many GPUs on each machine.")
      .at_least(1);
  d("slurm_cpus_per_task", &LaunchOptions::slurm_cpus_per_task,
    "Request this many cores on each machine. If unset, whole machines.")
      .at_least(1);
  describe_unsupported(d);
  describe_ignored(d);
}

LaunchConfiguration parse_launch(const std::vector<std::string>& words,
                                 const config::Environment& environment) {
  LaunchConfiguration run;
  config::OptionTable table;
  describe(table, run.options);
  const std::size_t at = program_index(table, with_long_names(words));
  std::vector<std::string> own =
      with_long_names({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)});
  run.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  run.help = std::find(own.begin(), own.end(), "--help") != own.end();
  if (run.help) return run;
  std::erase(own, "--");

  const auto flags = config::read_flags(table, own);
  std::vector<std::string> others = config::internal_variables();
  // These are options of launch.
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
    for (const std::string& file : files.names) sources.push_back(config::read_file(file));
    config::remove_accelerate_keys(table, sources, run.notices);
    auto torchrun = config::torchrun_variables(environment);
    for (const auto& stronger : {variables, flags})
      config::remove_overridden_synonyms(torchrun, stronger);
    for (auto& file : sources) config::remove_overridden_synonyms(file, torchrun);
    for (auto& source : {torchrun, variables, flags}) sources.push_back(source);
    bool counted = false;
    for (auto& source : sources) counted |= config::resolve_process_count(source);
    config::resolve(table, sources, run.notices);
    check_counted(counted, run.options);
    config::check_limits(table);
    config::check_status(table, run.notices);
    config::resolve_tpu_options(table, run.options, environment, run.notices);
    validate(run.options);
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

std::string launch_help(int width) {
  LaunchOptions options;
  config::OptionTable table;
  describe(table, options);
  return "usage: hasten launch [--NAME VALUE ...] PROGRAM [ARGUMENT ...]\n\n"
         "Starts PROGRAM in several processes, on one machine or on many, each with a rank in its\n"
         "environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets\n"
         "them), and supervises them: if one fails, the others are stopped, the first failure is\n"
         "reported with its last lines of output, and all are restarted if --max_restarts allows\n"
         "it.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
