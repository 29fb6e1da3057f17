// File: hasten/launch/slurm_script.h
// Writes the script that runs `hasten launch` under Slurm: one launcher on each machine, all for
// one job.
//
//   std::fputs(to_text(slurm_script(run, "hasten")).c_str(), stdout);
//
// The same on the command line:
//
//   $ hasten launch --slurm --num_machines 4 ./train > train.sbatch
//   $ sbatch train.sbatch
//
// Submits nothing and calls no command of Slurm. Throws ConfigError "config.bad-value" for a value
// that cannot be written in a line of the script, and for a signal that launchers do not forward.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/launch_options.h"

namespace hasten {

struct SlurmScript {
  std::string hasten = "hasten";  // The command, as the cluster's machines find it.
  std::string job_name = "hasten";
  std::int64_t num_machines = 1;
  std::string time = {};  // "1-12:00:00"; empty for the partition's limit.
  std::string partition = {};
  std::string account = {};
  // "USR1@120", sent to the launchers before the time is up; empty for none. A job that it has
  // stopped is requeued.
  std::string signal = {};
  std::optional<std::int64_t> gpus_per_node = {};
  std::optional<std::int64_t> cpus_per_task = {};  // Cores per machine; unset for whole machines.
  std::vector<std::string> options = {};           // Further options of each launcher.
  std::vector<std::string> program = {};           // With its arguments.
};

// Returns the script for this configuration. Only options that differ from their defaults, or that
// a flag gives, are passed to the launchers.
HASTEN_API SlurmScript slurm_script(const LaunchConfiguration& run, const std::string& hasten);

HASTEN_API std::string to_text(const SlurmScript& script);

// Quotes any text as one word for a shell.
HASTEN_API std::string shell_word(std::string_view text);

}  // namespace hasten
