// File: launch/tpu_variables.h (internal)
// What the processes of this machine are told so that each has a TPU chip of its own, in the words
// of torch_tpu 0.2. That tells libtpu the rest in each process, from these and LOCAL_RANK
// (TPU_PROCESS_BOUNDS, TPU_PROCESS_ADDRESSES, CLOUD_TPU_TASK_ID and others), over whatever is set.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hasten/config/installed_tpus.h"
#include "hasten/config/launch_options.h"
#include "hasten/launch/launcher.h"

namespace hasten {

using VariableList = std::vector<std::pair<std::string, std::string>>;

class TpuPlaces {
 public:
  // `environment` is the launcher's: what is set there stays as it is, and TPU_VISIBLE_DEVICES or
  // TPU_VISIBLE_CHIPS say which chips there are to share. Throws IoError "device.tpu-missing",
  // ConfigError "launch.tpu-processes", "launch.environment", "config.missing".
  TpuPlaces(const Round& round, const config::Environment& environment,
            const std::vector<std::string>& installed = config::installed_tpus());

  VariableList of(std::int64_t local_rank) const;

 private:
  VariableList common_;             // to all of them
  std::vector<std::string> chips_;  // by local rank
};

// How a program is told of bf16 and of what becomes of double, beside ACCELERATE_MIXED_PRECISION;
// accelerate's and torch_xla's names.
VariableList bf16_variables(LaunchPrecision precision, bool downcast_bf16);

// A rank's addresses with ports that are chosen only when it starts, for people.
std::string without_ports(const std::string& variable);

}  // namespace hasten
