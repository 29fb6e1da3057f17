// File: hasten/launch/launcher.h
// Starts a program several times on this machine and looks after the processes.
//
//   LaunchConfiguration run = parse_launch(argc - 2, argv + 2, config::process_environment());
//   return launch(run);                                     // the exit code of the job
//
// Each process (rank) has torchrun's environment: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT, TORCHELASTIC_RESTART_COUNT and the others; the port is free and another one at each
// attempt, so that no attempt meets what an earlier one left. Each is the leader of a process
// group.
//
// What is promised: when a rank fails the others are stopped, and the first failure is told, with
// its last lines; its code is the launcher's (128 + n for signal n). SIGINT, SIGTERM, SIGHUP,
// SIGUSR1 and SIGUSR2 reach every rank; a second SIGINT kills. Whoever dies, the launcher by kill
// -9 too, no rank and no process that a rank has started lives on.
//
// Needs no torch. Throws IoError where the program cannot be started. Thread rule: once a process,
// on its only thread; it takes the signals above.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten {

// One process to be started.
struct RankCommand {
  std::vector<std::string> program;
  std::vector<std::string> environment;  // NAME=value, beside the launcher's own
};

// What would be started, for the first attempt; `port` as MASTER_PORT.
std::vector<RankCommand> rank_commands(const LaunchConfiguration& run, int port, int attempt,
                                       const std::string& job);
// The settings with their origins, and the commands, for people.
std::string launch_text(const LaunchConfiguration& run);

int launch(const LaunchConfiguration& run);

}  // namespace hasten
