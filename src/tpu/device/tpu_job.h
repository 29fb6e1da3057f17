// File: tpu/device/tpu_job.h (internal)
// The environment variables that describe a process of a job to torch_tpu and libtpu. Both read the
// environment once, when the TPU is opened (tpu/module/open_tpu.h). Thread rule: a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hasten/launch/worker.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

// How the processes of a job open their TPUs: together, as one machine with many chips that run
// programs together, or each process alone with one chip.
enum class TpuJob { one_slice, separate_chips };

struct Variable {
  std::string name;
  std::optional<std::string> value;  // nullopt if the variable is unset
};

// Returns the variables for `worker`. With TpuJob::one_slice they are the rank of this process and
// the addresses at which the ranks' runtimes connect. The addresses are those in
// TORCH_TPU_SLICEBUILDER_ADDRESSES. If it is unset, they are ports from TORCH_TPU_BASE_PORT on
// (default 8070), on the hosts in TPU_WORKER_HOSTNAMES, or on localhost for one machine. With
// TpuJob::separate_chips they are the chip of the local rank, from TPU_VISIBLE_DEVICES or
// TPU_VISIBLE_CHIPS if one of them lists several, and the variables of the job are unset. Throws
// ConfigError "device.tpu-job", or "launch.environment" for a wrong list of chips.
std::vector<Variable> tpu_variables(const Worker& worker, TpuJob job,
                                    const config::Environment& environment);

}  // namespace hasten
