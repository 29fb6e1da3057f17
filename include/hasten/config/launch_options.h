// File: hasten/config/launch_options.h
// The options of `hasten launch`: how many processes of which program, and how they are looked
// after. Names, defaults and files are Accelerate's where the thing is the same.
//
//   hasten launch --num_processes 4 ./train --epochs 3
//   hasten launch --config_file accelerate.yaml --dry_run ./train
//
// Everything is parsed and checked before a process starts. Needs no torch. Throws ConfigError
// "config.*", IoError. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/config/help.h"
#include "hasten/config/kwargs.h"
#include "hasten/config/machines.h"
#include "hasten/config/sources.h"

namespace hasten {

enum class LaunchPrecision { no, fp16, bf16 };
enum class DistributedType { NO, MULTI_CPU, MULTI_GPU, XLA };

enum class RendezvousBackend { static_, c10d };

template <>
struct Names<RendezvousBackend> {
  static constexpr std::string_view text[] = {"static", "c10d"};
};
template <>
struct Names<LaunchPrecision> {
  static constexpr std::string_view text[] = {"no", "fp16", "bf16"};
};
template <>
struct Names<DistributedType> {
  static constexpr std::string_view text[] = {"NO", "MULTI_CPU", "MULTI_GPU", "XLA"};
};

struct LaunchOptions {
  std::vector<std::string> config_file;  // YAML or JSON; later ones win
  bool no_config_file = false;           // not even the default one
  bool dry_run = false;                  // print what would be started, then stop

  // Of all machines; unset: one for each TPU chip or GPU, else one.
  std::optional<std::int64_t> num_processes;
  std::optional<std::int64_t> nproc_per_node;               // the same, said for each machine
  bool use_cpu = false;                                     // also where there are GPUs
  std::string gpu_ids = "all";                              // or numbers with commas
  std::optional<std::int64_t> num_cpu_threads_per_process;  // unset: cores / processes
  bool enable_cpu_affinity = false;                         // each process on cores of its own
  LaunchPrecision mixed_precision = LaunchPrecision::no;
  DistributedType distributed_type = DistributedType::NO;  // said by files; follows from the rest
  bool debug = false;

  bool tpu = false;                  // each process on a TPU chip of its own; also said by
                                     // distributed_type, and by the machine where nobody says more
  bool downcast_bf16 = false;        // with bf16 on TPUs: double becomes float, not bf16
  std::vector<std::string> tpu_env;  // NAME=value of each process on a TPU

  std::optional<std::int64_t> num_machines;       // unset: 1
  std::string nnodes;                             // torchrun's: 2, or 2:4 where it may change
  bool standalone = false;                        // torchrun's: there is no other machine
  std::optional<std::int64_t> machine_rank;       // of this machine
  std::string main_process_ip;                    // of machine 0, where all meet
  std::optional<std::int64_t> main_process_port;  // there; unset: 29500; one machine: any
  std::string rdzv_endpoint;                      // HOST:PORT instead of both
  std::optional<RendezvousBackend> rdzv_backend;  // static: ranks are told; c10d: given
  std::string rdzv_id;                            // a name of the job, the same on all machines
  Kwargs rdzv_conf;             // join_timeout, last_call_timeout, keep_alive_timeout, same_program
  std::string local_addr;       // this machine's address for the others; unset: as they see it
  std::string token_file;       // holds what only this job's processes know
  std::optional<bool> encrypt;  // between machines; unset: yes, unless the program says otherwise

  std::int64_t max_restarts = 0;  // of all processes, after one has failed
  double grace_period = 10;       // seconds from a signal to stop until it is enforced

  std::string log_dir;    // files of each attempt and rank; empty: none
  std::string tee;        // shown and in files: 3, or 0:3,1:1; empty with redirects empty: one file
                          // a rank for both
  std::string redirects;  // in files and not shown; the same form
  std::string local_ranks_filter;  // ranks whose output is shown, with commas; empty: all
  bool quiet = false;              // nothing of the launcher's own but errors

  bool slurm = false;           // print a script for sbatch, then stop
  std::string slurm_time;       // "1-12:00:00"; empty: the partition's own limit
  std::string slurm_partition;  // empty: the cluster's own
  std::string slurm_account;
  std::string slurm_signal;  // "USR1@120": before the time is up; empty: none
  std::optional<std::int64_t> slurm_gpus_per_node;
  std::optional<std::int64_t> slurm_cpus_per_task;  // of each machine; unset: whole machines
};

struct LaunchConfiguration {
  bool help = false;
  LaunchOptions options;
  Machines machines;
  std::string token;                 // of the job; empty with one machine: a new one is made
  std::vector<std::string> program;  // with its arguments
  std::vector<std::string> notices;  // one line each, for standard error
  std::vector<config::ResolvedValue> values;  // with origins
};

void describe(config::OptionTable& table, LaunchOptions& options);

// `argv` are the words after the subcommand: options, then the program with its own words.
// torchrun's variables PET_NNODES and so on are weaker than HASTEN_NNODES, and stronger than files.
// Where no file is named, the one that config::found_file() finds in `environment` is read.
LaunchConfiguration parse_launch(int argc, const char* const* argv,
                                 const config::Environment& environment);
std::string launch_help(int width);

}  // namespace hasten
