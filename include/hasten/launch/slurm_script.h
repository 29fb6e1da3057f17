// File: hasten/launch/slurm_script.h
// The script that gives `hasten launch` to Slurm: one launcher on each machine, all of one job.
//
//   std::fputs(to_text(slurm_script(run, "hasten")).c_str(), stdout);
//   // hasten launch --slurm ... > train.sbatch;  sbatch train.sbatch
//
// Nothing is submitted, and nothing of Slurm's is called. Thread rule: values and pure functions.
// Throws ConfigError "config.bad-value" for a value that no line of the script could hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/launch_options.h"

namespace hasten {

struct SlurmScript {
  std::string hasten = "hasten";  // the command, as the machines of the cluster find it
  std::string job_name = "hasten";
  std::int64_t num_machines = 1;
  std::string time;  // "1-12:00:00"; empty: the partition's own limit
  std::string partition;
  std::string account;
  std::string signal;  // "USR1@120": before the time is up; empty: none
  std::optional<std::int64_t> gpus_per_node;
  std::optional<std::int64_t> cpus_per_task;  // of each machine; unset: whole machines
  std::vector<std::string> options;           // further ones of each launcher
  std::vector<std::string> program;           // with its arguments
};

// What the command line, its files and variables say; only what differs from the defaults is passed
// on to the launchers.
SlurmScript slurm_script(const LaunchConfiguration& run, const std::string& hasten);

std::string to_text(const SlurmScript& script);

// One word for a shell, whatever is in it.
std::string shell_word(std::string_view text);

}  // namespace hasten
