// File: tpu/device/tpu_job.h (internal)
// The environment variables that describe a process of a job to torch_tpu and libtpu. Both read the
// environment once, when the TPU is opened (tpu/module/open_tpu.h). Thread rule: a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hasten/launch/worker.h"
#include "hasten/options/environment.h"

namespace hasten {

// How the processes of a job open their TPUs: as one machine of many chips whose programs
// communicate, or each alone with one chip.
enum class TpuJob { one_slice, separate_chips };

struct Variable {
  std::string name;
  std::optional<std::string> value;  // nullopt: the variable is unset
};

// Returns the variables for `worker`. For TpuJob::one_slice: the addresses at which the ranks'
// runtimes connect (TORCH_TPU_SLICEBUILDER_ADDRESSES, else the ports from TORCH_TPU_BASE_PORT,
// default 8070, on the hosts of TPU_WORKER_HOSTNAMES, or on localhost for one machine), and the
// rank of this process. For TpuJob::separate_chips: the chip of its local rank, and no variables
// of the job. Throws ConfigError "device.tpu-job".
std::vector<Variable> tpu_variables(const Worker& worker, TpuJob job,
                                    const config::Environment& environment);

}  // namespace hasten
