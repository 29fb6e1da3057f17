// File: device/tpu_job.h (internal)
// What torch_tpu and libtpu are told of a process that is one of several: both read the
// environment, once, when the TPU is opened. The process's own variables are as before afterwards.
// Thread rule: one thread at a time, and no other that reads the environment meanwhile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hasten/config/sources.h"
#include "hasten/launch/worker.h"

namespace hasten {

// How the TPUs of a job's processes are opened: as one machine of many chips whose programs speak
// to each other, or each alone, one chip a process.
enum class TpuJob { together, alone };

struct Variable {
  std::string name;
  std::optional<std::string> value;  // none: unset
};

// Together: addresses at which the ranks' runtimes meet (TORCH_TPU_SLICEBUILDER_ADDRESSES, else
// TORCH_TPU_BASE_PORT, 8070, and those that follow, on the hosts of TPU_WORKER_HOSTNAMES), and who
// this one is. Alone: the chip of its local rank, and nothing of the job. Throws ConfigError
// "device.tpu-job".
std::vector<Variable> tpu_variables(const Worker& worker, TpuJob job,
                                    const config::Environment& environment);

// Variables of the environment, for a scope.
class ScopedVariables {
 public:
  explicit ScopedVariables(const std::vector<Variable>& variables);
  ScopedVariables(const ScopedVariables&) = delete;
  ScopedVariables& operator=(const ScopedVariables&) = delete;
  ~ScopedVariables();

 private:
  std::vector<Variable> before_;
};

}  // namespace hasten
