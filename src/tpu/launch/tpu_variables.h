// File: tpu/launch/tpu_variables.h (internal)
// The environment variables that give each process of this machine a TPU chip of its own, with the
// names of torch_tpu 0.2. From these and LOCAL_RANK, torch_tpu sets libtpu's variables in each
// process (TPU_PROCESS_BOUNDS, TPU_PROCESS_ADDRESSES, CLOUD_TPU_TASK_ID and others), and overwrites
// them if they are set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/launch/launcher.h"
#include "hasten/options/launch_options.h"
#include "launch/rank_variables.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten {

class TpuVariables {
 public:
  // `environment` is the launcher's. Variables that are set there keep their values, except
  // TPU_VISIBLE_DEVICES or TPU_VISIBLE_CHIPS, which lists the chips to divide. Throws IoError
  // "device.tpu-missing", ConfigError "launch.tpu-processes", "launch.environment",
  // "config.missing".
  TpuVariables(const Round& round, const config::Environment& environment,
               const std::vector<std::string>& installed = config::installed_tpus());

  VariableList variables_of(std::int64_t local_rank) const;

 private:
  VariableList common_;             // the variables of all processes
  std::vector<std::string> chips_;  // by local rank
};

// Returns the variables for bf16 and for the type that replaces double, in addition to
// ACCELERATE_MIXED_PRECISION. Their names are those of Accelerate and torch_xla.
VariableList bf16_variables(Precision precision, bool downcast_bf16);

// The variables that the ranks of this machine get because of TPUs. On TPUs they are the variables
// above and options.tpu_env. Elsewhere there is only one, which keeps a program from using TPUs
// unasked. Throws what TpuVariables throws.
class TpuRankVariables {
 public:
  // Uses `tpu`, `mixed_precision`, `downcast_bf16` and `tpu_env` of the options.
  TpuRankVariables(const LaunchOptions& options, const Round& round);

  VariableList variables_of(std::int64_t local_rank) const;

 private:
  std::optional<TpuVariables> tpus_;
  VariableList common_variables_;
};

// Hides ports that are chosen only when the ranks start.
std::string without_ports(const std::string& variable);

}  // namespace hasten
