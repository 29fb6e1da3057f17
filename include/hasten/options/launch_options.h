// File: hasten/options/launch_options.h
// The options of `hasten launch`: the program and the number of processes to start, and how to
// supervise them. Options that Accelerate also has use its names, defaults and files; some others
// come from torchrun.
//
//   $ hasten launch --num_processes 4 ./train --epochs 3
//   $ hasten launch --config_file accelerate.yaml --dry_run ./train
//
// All options are parsed and checked before a process starts. Needs no torch. Throws ConfigError
// "config.*", "launch.environment", IoError "io.*". Thread rule: values, and functions that only
// read files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/environment.h"
#include "hasten/options/detail/kwargs.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/detail/precision.h"
#include "hasten/options/detail/resolved_value.h"

namespace hasten {

namespace config {
class OptionTable;
}

enum class DistributedType { NO, MULTI_CPU, MULTI_GPU, XLA };

enum class RendezvousBackend { static_, c10d };

template <>
struct Names<RendezvousBackend> {
  static constexpr std::string_view text[] = {"static", "c10d"};
};
template <>
struct Names<DistributedType> {
  static constexpr std::string_view text[] = {"NO", "MULTI_CPU", "MULTI_GPU", "XLA"};
};

struct LaunchOptions {
  std::vector<std::string> config_file = {};  // YAML or JSON; later files win.
  bool no_config_file = false;                // Read no file, not even the default one.
  bool dry_run = false;                       // Print what would be started, then stop.

  // On all machines together. If unset: one for each TPU chip or GPU, otherwise one.
  std::optional<std::int64_t> num_processes = {};
  std::optional<std::int64_t> nproc_per_node = {};  // Processes per machine, as an alternative.
  bool use_cpu = false;                             // Use the CPU, even if there are GPUs.
  std::string gpu_ids = "all";                      // Or numbers separated by commas.
  // OMP_NUM_THREADS of each process. If unset: the variable's value, or cores / processes.
  std::optional<std::int64_t> num_cpu_threads_per_process = {};
  bool enable_cpu_affinity = false;  // Bind each process to its own cores.
  Precision mixed_precision = Precision::no;
  // Set by Accelerate's files. hasten derives it from the other options, except that XLA sets
  // `tpu`.
  DistributedType distributed_type = DistributedType::NO;
  bool debug = false;

  // Gives each process a TPU chip of its own. Also set by distributed_type XLA or
  // ACCELERATE_USE_TPU, and on a machine with TPUs if nothing asks for another device.
  bool tpu = false;
  bool downcast_bf16 = false;             // With bf16 on TPUs, double becomes float, not bf16.
  std::vector<std::string> tpu_env = {};  // NAME=value for each process on a TPU.

  std::optional<std::int64_t> num_machines = {};  // 1 if unset.
  std::string nnodes = {};                        // As in torchrun: 2, or 2:4 for a range.
  bool standalone = false;                        // As in torchrun: one machine.
  std::optional<std::int64_t> machine_rank = {};  // The rank of this machine, from 0.
  std::string main_process_ip = {};  // Address of machine 0, to which all machines connect.
  // The port at main_process_ip. If unset: 29500, or a free port with one machine.
  std::optional<std::int64_t> main_process_port = {};
  std::string rdzv_endpoint = {};  // HOST:PORT instead of main_process_ip and main_process_port.
  // With static, machine_rank gives the ranks; with c10d, they are assigned. If unset: c10d with
  // rdzv_endpoint or a range of machines, otherwise static.
  std::optional<RendezvousBackend> rdzv_backend = {};
  std::string rdzv_id = {};  // Name of the job, the same on all machines.
  // join_timeout, last_call_timeout, keep_alive_timeout (seconds), same_program (true or false).
  Kwargs rdzv_conf = {};
  // The address of this machine for the other machines. If empty, they use the address that they
  // see.
  std::string local_addr = {};
  std::string token_file = {};  // File with the job's token (machine/token.h).
  // Encrypts tensors between machines. If unset, tensors are encrypted unless the program decides
  // otherwise.
  std::optional<bool> encrypt = {};

  std::int64_t max_restarts = 0;  // Restarts of all processes after one has failed.
  // Training runs continue from their newest checkpoint, if there is one.
  bool resume = false;
  double grace_period = 10;  // Seconds from a stop signal until processes are killed.

  std::string log_dir = {};  // Folder for the output of each attempt and rank; none if empty.
  // The streams that are shown and also written to log_dir: 0 none, 1 output, 2 errors, 3 both; "3"
  // for all ranks, or "0:3,1:1" by local rank. If tee and redirects are both empty, log_dir gets
  // one file per rank with both streams.
  std::string tee = {};
  // The streams that are written to log_dir and not shown, in the same form.
  std::string redirects = {};
  // Local ranks that show output, separated by commas; all if empty.
  std::string local_ranks_filter = {};
  bool quiet = false;  // The launcher itself prints only errors.

  bool slurm = false;                // Print a script for sbatch, then stop.
  std::string slurm_time = {};       // "1-12:00:00"; the partition's limit if empty.
  std::string slurm_partition = {};  // The cluster's default if empty.
  std::string slurm_account = {};
  std::string slurm_signal = {};  // "USR1@120", sent before the time is up; none if empty.
  std::optional<std::int64_t> slurm_gpus_per_node = {};
  // Cores per machine; whole machines if unset.
  std::optional<std::int64_t> slurm_cpus_per_task = {};
};

// The machines of a launch: how many, where they meet, and which one this is.
//
// There are two ways to meet, as in Accelerate and torchrun. Static: the number of machines is
// fixed, each machine is given its rank, and all meet at machine 0. By endpoint (rdzv_endpoint, or
// rdzv_backend c10d): all machines have the same options, and the machine with that address serves
// the others; their number may then be a range (nnodes 2:4).
struct Machines {
  // The smallest and the largest number of machines.
  std::int64_t min_count = 1;
  std::int64_t max_count = 1;
  std::int64_t rank = -1;  // From 0; -1 if it is assigned when the machines meet.
  std::string host = {};   // The machine that the others connect to; empty with one machine.
  int port = 0;            // The port there, or MASTER_PORT with one machine; 0 means a free port.
  bool has_several() const { return max_count > 1; }
};

inline constexpr int kRendezvousPort = 29500;  // The default of Accelerate and torchrun.

// Combines the options, and throws if they contradict each other or if one is missing.
HASTEN_API Machines resolve_machines(const LaunchOptions& options);

// The result of parse_launch.
struct LaunchConfiguration {
  bool help = false;
  LaunchOptions options = {};
  Machines machines = {};
  std::string token = {};                 // If empty, a new one is created (one machine only).
  std::vector<std::string> program = {};  // With its arguments.
  std::vector<std::string> notices = {};  // One line each, for standard error.
  std::vector<config::ResolvedValue> values = {};  // With their origins.
};

HASTEN_API void describe(config::OptionTable& table, LaunchOptions& options);

// Parses the arguments after `launch`: options, then the program with its arguments. From weakest
// to strongest: files, torchrun's variables (PET_NNODES, ...), HASTEN_ variables, flags. If no file
// is named, the one that config::find_default_file() finds in `environment` is read.
HASTEN_API LaunchConfiguration parse_launch(const std::vector<std::string>& arguments,
                                            const config::Environment& environment);
HASTEN_API std::string launch_help(int width);

}  // namespace hasten
