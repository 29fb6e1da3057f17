#include "hasten/config/launch_options.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "config/accelerate_sections.h"
#include "config/command_line.h"
#include "config/streams.h"
#include "config/torchrun_words.h"
#include "config/tpu_options.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/config/default_file.h"
#include "hasten/config/token.h"

namespace hasten {
namespace {

using O = LaunchOptions;
using config::AnyText;

// Names in Accelerate's files and flags that need an engine which hasten does not have.
void later(config::Describer<O>& d) {
  for (const char* name : {"mpirun_config", "mpirun_hostfile"})
    d.not_yet<AnyText>(name,
                       "hasten launch starts the processes itself; or mpirun does, without it");
  for (const char* name : {"fsdp_config", "deepspeed_config", "megatron_lm_config", "fp8_config",
                           "parallelism_config"})
    d.not_yet<AnyText>(name, "each process trains by itself");
  for (const char* name :
       {"use_fsdp", "use_deepspeed", "use_megatron_lm", "use_parallelism_config"})
    d.not_yet<bool>(name, "each process trains by itself");
  d.not_yet<AnyText>("tpu_vm", config::kEachMachine);
  d.not_yet<bool>("tpu_use_cluster", config::kEachMachine);
}

void without_meaning(config::Describer<O>& d) {
  d.no_meaning<AnyText>("compute_environment", "it is this machine");
  d.no_meaning<AnyText>("main_training_function", "a program has its own main");
  d.no_meaning<bool>("same_network", "machines meet where main_process_ip or rdzv_endpoint says",
                     true);
  d.no_meaning<AnyText>("role", "all processes are alike");
  d.no_meaning<double>("monitor_interval", "the system tells when a process ends", 0.1);
  d.no_meaning<bool>("multi_gpu", "it follows from num_processes");
  d.no_meaning<bool>("no_python", "programs are started as they are");
  d.no_meaning<AnyText>("dynamo_config", "programs are compiled before they run");
  for (const char* name : {"tpu_name", "tpu_zone", "commands", "command_file"})
    d.no_meaning<AnyText>(name, "it is for hasten tpu-config");
  d.no_meaning<bool>("tpu_use_sudo", config::kOwnUser);
}

// Requires numbers with commas, each once.
void check_numbers(const std::string& option, const std::string& text) {
  std::vector<std::string> seen;
  std::string word;
  const auto refuse = [&](const char* expected) {
    throw ConfigError("config.bad-value",
                      {.what = option, .got = "'" + text + "'", .expected = expected});
  };
  for (const char letter : text + ",") {
    if (letter != ',') {
      if (letter < '0' || letter > '9') refuse("numbers with commas, such as 0,1");
      word += letter;
      continue;
    }
    if (word.empty() || word.size() > 6) refuse("numbers with commas, such as 0,1");
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) refuse("each number once");
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
      throw ConfigError("config.unknown-key", {.what = "rdzv_conf has no " + name,
                                               .hint = near ? "did you mean " + *near + "?"
                                                            : "it has " + join(known, ", ")});
    }
    const bool is_time = name != "same_program";
    const bool good = is_time ? value.is_number() && value.number() > 0 && value.number() <= 1e7
                              : value.text() == "true" || value.text() == "false";
    if (good) continue;
    throw ConfigError("config.bad-value",
                      {.what = "rdzv_conf's " + name,
                       .got = "'" + value.text() + "'",
                       .expected = is_time ? "seconds above 0" : "true or false"});
  }
}

// The token never comes from the command line, where other users would see it.
std::string token_of(const O& options, const Machines& machines,
                     const config::Environment& environment) {
  const auto variable = environment.find(kTokenVariable);
  if (!options.token_file.empty()) return read_token_file(options.token_file);
  std::string token = variable == environment.end() ? "" : variable->second;
  if (!token.empty()) check_token(token, kTokenVariable);
  if (token.empty() && machines.several() && !options.slurm) {
    throw ConfigError(
        "config.missing",
        {.what = "the job's token, which keeps strangers out",
         .hint = "(umask 077; openssl rand -hex 32 >token); the file, the same on all machines, by "
                 "--token_file or its text in HASTEN_JOB_TOKEN"});
  }
  return token;
}

// Output that is kept in files needs log_dir.
void check_streams(const O& options) {
  for (const auto& [name, text] : {std::pair<const char*, std::string>{"tee", options.tee},
                                   {"redirects", options.redirects}}) {
    if (!streams_of(name, text).any() || !options.log_dir.empty()) continue;
    throw ConfigError("config.missing",
                      {.what = str(name, " is ", text, ", and log_dir is not set"),
                       .expected = "a folder for the files",
                       .hint = "--log_dir logs"});
  }
}

void validate(const O& options) {
  check_rendezvous(options.rdzv_conf);
  check_streams(options);
  if (options.gpu_ids != "all") check_numbers("gpu_ids", options.gpu_ids);
  if (!options.local_ranks_filter.empty())
    check_numbers("local_ranks_filter", options.local_ranks_filter);
  if (options.use_cpu && options.gpu_ids != "all") {
    throw ConfigError("config.contradiction", {.what = "gpu_ids names GPUs, and use_cpu is set",
                                               .hint = "leave one of them out"});
  }
}

// Returns the position of the program: the first word that is no option and no option's value.
std::size_t program_at(const config::OptionTable& table, const std::vector<std::string>& words) {
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
    const config::Option* const option = table.find(name);
    if (option != nullptr && option->kind != config::Kind::boolean) {
      ++i;
    } else if (i < words.size() && (words[i] == "true" || words[i] == "false")) {
      ++i;
    }
  }
  return std::min(i, words.size());
}

// Renames those of Accelerate's flags that have another name in its files.
std::string with_name_of_files(const std::string& word) {
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
    word = with_name_of_files(config::without_torchrun_name(word));
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
void check_counted(bool counted, const O& options) {
  if (!counted || !options.slurm) return;
  throw ConfigError(
      "config.contradiction",
      {.what = "slurm with nproc_per_node gpu, cpu or auto, which counts this machine",
       .hint = "--nproc_per_node with a number"});
}

struct LaunchFiles {
  std::vector<std::string> names;
  bool found = false;  // the file was found; the user named none
};

LaunchFiles launch_files(const std::vector<config::Assignment>& flags,
                         const std::vector<config::Assignment>& variables,
                         const config::Environment& environment) {
  O asked;
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
  LaunchFiles files{.names = config::named_files(flags, variables)};
  if (asked.no_config_file) return {};
  if (!files.names.empty()) return files;
  const std::string file = config::found_file(environment);
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
                   " was read, as nobody named a file: --no_config_file leaves it out");
  throw ConfigError(error.code(), text);
}

}  // namespace

void describe(config::OptionTable& table, LaunchOptions& options) {
  config::Describer d(table, options);
  d.group("Command");
  d("config_file", &O::config_file,
    "YAML or JSON file, Accelerate's too; of several, later ones win.");
  d("no_config_file", &O::no_config_file,
    "Read no file, not even the default one: hasten's, else Accelerate's.");
  d("dry_run", &O::dry_run, "Print the settings, and each process's command and environment.");
  d.group("Processes");
  d("num_processes", &O::num_processes,
    "How many (-n), on all machines together; unset = one for each TPU chip or GPU, "
    "else one.")
      .at_least(1)
      .at_most(1 << 20);
  d("nproc_per_node", &O::nproc_per_node,
    "The same, said for each machine: a number, or gpu, cpu or auto, which count it.")
      .at_least(1)
      .at_most(4096);
  d("use_cpu", &O::use_cpu, "The CPU even where there are GPUs (--cpu).");
  d("gpu_ids", &O::gpu_ids, "GPUs that the processes see: all, or numbers with commas.");
  d("num_cpu_threads_per_process", &O::num_cpu_threads_per_process,
    "OMP_NUM_THREADS of each; unset = cores / processes, unless the variable is set.")
      .at_least(1);
  d("enable_cpu_affinity", &O::enable_cpu_affinity, "Give each process cores of its own.");
  d("mixed_precision", &O::mixed_precision,
    "What an Accelerator without an own setting computes in.")
      .later({"fp8"});
  d("distributed_type", &O::distributed_type,
    "Said by Accelerate's files; it follows from the rest.")
      .spelling("tpu", "XLA")
      .later({"FSDP", "DEEPSPEED", "MEGATRON_LM", "TP", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU",
              "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "MULTI_NEURON"});
  d("debug", &O::debug, "Check collectives before they run.");
  config::describe_tpus(d);
  d.group("Machines");
  d("num_machines", &O::num_machines, "How many; unset = 1.").at_least(1).at_most(4096);
  d("nnodes", &O::nnodes, "The same in torchrun's words: 2, or 2:4 where it may change.");
  d("standalone", &O::standalone, "One machine, as torchrun says it.");
  d("machine_rank", &O::machine_rank, "Which of them this is, from 0.").at_least(0);
  d("main_process_ip", &O::main_process_ip, "Address of machine 0, where all meet.");
  d("main_process_port", &O::main_process_port,
    "Port there; unset = 29500. With one machine MASTER_PORT; unset or 0 = a free one.")
      .at_least(0)
      .at_most(65535);
  d("rdzv_endpoint", &O::rdzv_endpoint,
    "HOST:PORT where all meet, served by the machine that has the address; ranks are given.");
  d("rdzv_backend", &O::rdzv_backend,
    "static: machine_rank tells ranks; c10d: they are given. Unset = as the others say.");
  d("rdzv_id", &O::rdzv_id, "Name of the job, the same on all machines.");
  d("rdzv_conf", &O::rdzv_conf,
    "join_timeout=600, last_call_timeout=30, keep_alive_timeout=30 (seconds), same_program=true.");
  d("local_addr", &O::local_addr, "This machine's address for the others; unset = as they see it.");
  d("token_file", &O::token_file,
    "File with the job's token, the same on all machines; unset = HASTEN_JOB_TOKEN.");
  d("encrypt", &O::encrypt,
    "Encrypt the tensors that go from machine to machine, but for NCCL's; unset = yes, unless the "
    "program says otherwise.");
  d.group("Supervision");
  d("max_restarts", &O::max_restarts, "How often all start again after one has failed.")
      .at_least(0);
  d("grace_period", &O::grace_period,
    "Seconds that processes have to end after a signal, before they are killed.")
      .at_least(0);
  d.group("Output");
  d("log_dir", &O::log_dir, "Folder for the output of each attempt and process.");
  d("tee", &O::tee,
    "What is shown and kept in log_dir (-t): 0 none, 1 output, 2 errors, 3 both, of all "
    "processes, or of each local rank: 0:3,1:1.");
  d("redirects", &O::redirects, "What is kept in log_dir and not shown (-r), in the same form.");
  d("local_ranks_filter", &O::local_ranks_filter, "Processes whose output is shown; unset = all.");
  d("quiet", &O::quiet, "Say nothing but errors (-q).");
  d.group("Slurm");
  d("slurm", &O::slurm, "Print a script for sbatch that starts PROGRAM so; submit nothing.");
  d("slurm_time", &O::slurm_time,
    "How long it may run, as 1-12:00:00; unset = the partition's own.");
  d("slurm_partition", &O::slurm_partition, "Where it runs; unset = the cluster's own.");
  d("slurm_account", &O::slurm_account, "Who is charged.");
  d("slurm_signal", &O::slurm_signal,
    "What Slurm sends before the time is up, as USR1@120, for a program that handles it; unset = "
    "nothing.");
  d("slurm_gpus_per_node", &O::slurm_gpus_per_node, "GPUs of each machine.").at_least(1);
  d("slurm_cpus_per_task", &O::slurm_cpus_per_task,
    "Cores of each machine; unset = machines are taken whole.")
      .at_least(1);
  later(d);
  without_meaning(d);
}

LaunchConfiguration parse_launch(int argc, const char* const* argv,
                                 const config::Environment& environment) {
  LaunchConfiguration run;
  config::OptionTable table;
  describe(table, run.options);
  const std::vector<std::string> words(argv, argv + argc);
  const std::size_t at = program_at(table, with_long_names(words));
  std::vector<std::string> own =
      with_long_names({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)});
  run.program.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  run.help = std::find(own.begin(), own.end(), "--help") != own.end();
  if (run.help) return run;
  std::erase(own, "--");

  std::vector<const char*> pointers;
  for (const std::string& word : own) pointers.push_back(word.c_str());
  const auto flags = config::read_flags(table, pointers);
  std::vector<std::string> others = config::other_variables();
  // These are options of launch.
  for (const char* const option : {"HASTEN_NO_CONFIG_FILE", "HASTEN_ENCRYPT"})
    std::erase(others, option);
  const auto variables = config::read_environment(table, environment, others, run.notices);
  const LaunchFiles files = launch_files(flags, variables, environment);
  if (files.found) {
    run.notices.push_back(files.names.front() +
                          " is read, as no file is named (--no_config_file: none)");
  }
  try {
    std::vector<std::vector<config::Assignment>> sources;
    for (const std::string& file : files.names) sources.push_back(config::read_file(file));
    config::take_accelerate_keys(table, sources, run.notices);
    auto torchrun = config::torchrun_variables(environment);
    for (const auto& stronger : {variables, flags}) config::yield_to(torchrun, stronger);
    for (auto& file : sources) config::yield_to(file, torchrun);
    for (auto& source : {torchrun, variables, flags}) sources.push_back(source);
    bool counted = false;
    for (auto& source : sources) counted |= config::count_processes(source);
    config::resolve(table, sources, run.notices);
    check_counted(counted, run.options);
    config::check_limits(table);
    config::check_status(table, run.notices);
    config::settle_tpus(table, run.options, environment, run.notices);
    validate(run.options);
    run.machines = machines_of(run.options);
    run.token = token_of(run.options, run.machines, environment);
  } catch (const ConfigError& error) {
    rethrow(error, files);
  }
  if (run.program.empty()) {
    throw ConfigError("config.missing", {.what = "no program to start",
                                         .hint = "hasten launch -n 4 ./train --epochs 3"});
  }
  run.values = config::snapshot(table);
  return run;
}

std::string launch_help(int width) {
  LaunchOptions options;
  config::OptionTable table;
  describe(table, options);
  return "usage: hasten launch [--NAME VALUE ...] PROGRAM [ARGUMENT ...]\n\n"
         "Starts PROGRAM several times, on one machine or on many, each with a rank in its "
         "environment "
         "(RANK,\n"
         "LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun has them), and looks "
         "after\n"
         "the processes: when one fails the others are stopped, the first failure is told with "
         "its\n"
         "last lines, and all start again where --max_restarts says so.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
