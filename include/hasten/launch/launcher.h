// File: hasten/launch/launcher.h
// Starts a program several times, on this machine or as its part of several, and looks after the
// processes.
//
//   LaunchConfiguration run = parse_launch(argc - 2, argv + 2, config::process_environment());
//   return launch(run);                                     // the exit code of the job
//
// Each process (rank) has torchrun's environment: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, TORCHELASTIC_RESTART_COUNT and the others; the port is free, held for rank 0, and
// another one at each attempt, so that no attempt meets what an earlier one left. HASTEN_STORE and
// HASTEN_JOB_TOKEN lead to keys and values that the launcher serves, behind TLS. Each rank is the
// leader of a process group.
//
// Of several machines each has its launcher; they meet at one of them (rendezvous/coordinator.h).
//
// What is promised: when a rank fails the others are stopped, and the first failure is told, with
// its last lines; its code is the launcher's (128 + n for signal n). SIGINT, SIGTERM, SIGHUP,
// SIGUSR1 and SIGUSR2 reach every rank; a second SIGINT kills. Whoever dies, the launcher by kill
// -9 too, no rank and no process that a rank has started lives on.
//
// Needs no torch. Throws IoError where the program cannot be started or there is no TPU,
// ConfigError where TPU chips and processes do not match. Thread rule: once a process, on its only
// thread; it takes the signals above.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten {

// One coming together of all machines: what this one's ranks are told.
struct Round {
  int attempt = 0;
  std::int64_t machine_rank = 0;
  std::int64_t num_machines = 1;
  std::int64_t first_rank = 0;  // of this machine's
  std::int64_t world_size = 1;
  std::int64_t processes = 1;  // on this machine
  std::string master_addr;
  int master_port = 0;
  std::string store;  // HOST:PORT of the job's keys and values
  std::string token;
  std::string run_id;  // the job's name, the same on all machines; empty: this launcher's own
};

// One process to be started.
struct RankCommand {
  std::vector<std::string> program;
  std::vector<std::string> environment;  // NAME=value, beside the launcher's own
  std::vector<int> cores;  // the only ones it may use, of those the launcher may; empty: all
};

// How many of the processes are this machine's.
std::int64_t processes_here(const LaunchConfiguration& run);
// What is started; `job` is this launcher's mark on its processes.
std::vector<RankCommand> rank_commands(const LaunchConfiguration& run, const Round& round,
                                       const std::string& job);
// Throws what rank_commands would, before anything is started: a program that is not there, more
// processes than TPU chips.
void check_rank_commands(const LaunchConfiguration& run);
// The settings with their origins, and the commands, for people.
std::string launch_text(const LaunchConfiguration& run);

int launch(const LaunchConfiguration& run);

}  // namespace hasten
