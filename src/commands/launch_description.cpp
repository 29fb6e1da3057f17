// Describes every option of `hasten launch` for flags, files, variables and help. Also describes
// names that have no effect or are not supported.
#include "accelerate_file/accelerate_names.h"
#include "hasten/options/launch_options.h"
#include "options/describe.h"
#include "options/help.h"
#include "tpu/commands/tpu_options.h"

namespace hasten {
namespace {

using config::AnyText;

// Names in Accelerate's files and flags that need an engine which hasten does not have.
void describe_unsupported(config::Describer<LaunchOptions>& d) {
  for (const char* name : {"mpirun_config", "mpirun_hostfile"})
    d.unimplemented<AnyText>(name,
                             "hasten launch starts the processes itself; to use mpirun, start the "
                             "program with mpirun directly");
  for (const char* name :
       {"fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config"})
    d.unimplemented<AnyText>(name, "each process holds the whole model");
  d.unimplemented<AnyText>("fp8_config", "use mixed_precision bf16");
  for (const char* name :
       {"use_fsdp", "use_deepspeed", "use_megatron_lm", "use_parallelism_config"})
    d.unimplemented<bool>(name, "each process holds the whole model");
  d.unimplemented<AnyText>("tpu_vm", config::kOverSshReason);
  d.unimplemented<bool>("tpu_use_cluster", config::kOverSshReason);
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
    "Print the settings and the command and environment of each process instead of starting them.");
  d.group("Processes");
  d("num_processes", &LaunchOptions::num_processes,
    "Start this many processes on all machines together (-n). If unset, one for each TPU chip "
    "or GPU (see CUDA_VISIBLE_DEVICES), or one if there is neither.")
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
      .unimplemented_choices({"fp8"});
  d("distributed_type", &LaunchOptions::distributed_type,
    "Accept this key of Accelerate's files. XLA turns on tpu; other values have no effect, because "
    "hasten derives the type from the other options.")
      .alias("tpu", "XLA")
      .unimplemented_choices({"FSDP", "DEEPSPEED", "MEGATRON_LM", "TP", "MULTI_XPU", "MULTI_NPU",
                              "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU",
                              "MULTI_NEURON"});
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
    "Set the address by which the other machines reach this one. Default: the address from which "
    "they see this machine connect.");
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
  d("resume", &LaunchOptions::resume,
    "Continue training runs from the newest checkpoint in their output_dir, if there is one. "
    "Restarts by max_restarts do so in any case.");
  d("grace_period", &LaunchOptions::grace_period,
    "Wait this many seconds after a stop signal before processes are killed.")
      .at_least(0)
      .at_most(1e7);
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

std::string launch_help(int width) {
  LaunchOptions options;
  config::OptionTable table;
  describe(table, options);
  return "usage: hasten launch [--NAME VALUE ...] PROGRAM [ARGUMENT ...]\n\n"
         "Starts PROGRAM in several processes, on one machine or on many, each with a rank in its\n"
         "environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets\n"
         "them), and supervises them: if one fails, the others are stopped, the first failure is\n"
         "reported with its last lines of output, and all are restarted if --max_restarts allows\n"
         "it.\n" +
         config::help_text(table, width);
}

}  // namespace hasten
