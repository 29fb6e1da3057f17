// File: hasten/launch/launcher.h
// Starts a program several times on this machine, alone or as one of several machines, and
// supervises the processes.
//
//   LaunchConfiguration run = parse_launch({argv + 2, argv + argc}, config::process_environment());
//   return launch(run);                                     // the exit code of the job
//
// Each process (rank) has torchrun's environment: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, TORCHELASTIC_RESTART_COUNT and the others. The port is free and reserved for rank 0.
// Each attempt uses a new port, so that it cannot connect to processes that are left from an
// earlier attempt. HASTEN_STORE and HASTEN_JOB_TOKEN give access to a key-value store that the
// launcher serves over TLS. Each rank leads its own process group.
//
// With several machines, one launcher runs on each machine; the launchers meet at one of the
// machines (rendezvous/coordinator.h).
//
// When a rank fails, the launcher stops the others, reports the first failure with its last lines,
// and returns its exit code (128 + n for signal n). SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2
// are forwarded to every rank; a second SIGINT kills them. When the launcher dies, even by SIGKILL,
// no rank and no process that a rank has started survives.
//
// Needs no torch. Throws IoError "launch.program" if the program cannot be started, IoError
// "device.tpu-missing" without a TPU, ConfigError "launch.tpu-processes" if TPU chips and processes
// do not match, ConfigError "launch.one-of-many" inside another launcher. Thread rule: once per
// process, on its only thread; it handles the signals above.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/launch_options.h"

namespace hasten {

// One attempt of the job, on which all machines have agreed, as seen from this machine.
struct Round {
  // The number of restarts so far.
  int attempt = 0;
  std::int64_t machine_rank = 0;
  std::int64_t num_machines = 1;
  std::int64_t first_rank = 0;  // The lowest rank of this machine.
  std::int64_t world_size = 1;
  std::int64_t processes = 1;  // Processes on this machine.
  std::string master_addr = {};
  int master_port = 0;
  std::string store = {};  // HOST:PORT of the job's key-value store.
  std::string token = {};
  // The job's name, the same on all machines. If empty, this launcher uses its own name for the
  // job.
  std::string run_id = {};
};

// The command that starts one process.
struct RankCommand {
  std::vector<std::string> program = {};
  std::vector<std::string> environment = {};  // NAME=value, in addition to the launcher's own.
  // The CPUs that the process may use, a subset of the launcher's CPUs. If empty, it may use all of
  // them.
  std::vector<int> cores = {};
};

// The number of processes on this machine.
HASTEN_API std::int64_t processes_on_this_machine(const LaunchConfiguration& run);
// The commands that start this machine's ranks. `job` is the mark by which this launcher recognizes
// its processes.
HASTEN_API std::vector<RankCommand> rank_commands(const LaunchConfiguration& run,
                                                  const Round& round, const std::string& job);
// Throws what rank_commands would throw, before anything is started: for a missing program, or for
// more processes than TPU chips.
HASTEN_API void check_rank_commands(const LaunchConfiguration& run);
// Formats the settings with their origins, and the commands.
HASTEN_API std::string launch_text(const LaunchConfiguration& run);

// Runs the job until it ends, and returns its exit code.
HASTEN_API int launch(const LaunchConfiguration& run);

}  // namespace hasten
