// File: plan/tpu_step.h (internal)
// Predicts the memory of a step on a TPU. It runs in a forked process, because a process can have
// only one estimate of a TPU's memory.
//
//   const TpuStep step = predict_on_tpu(options);        // options.device is "tpu:v5e:2x2"
//   if (step.rejection_reason.empty()) std::cout << step.bytes;
//
// Throws UsageError "process.fork-after-tpu" in a process that has opened a TPU, RankError with the
// error of the estimate, and IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "hasten/trainer/estimate.h"

namespace hasten {

struct TpuStep {
  std::int64_t bytes = 0;
  std::string rejection_reason;  // The reason why the step is impossible, or empty.
};

TpuStep predict_on_tpu(const EstimateOptions& options);

}  // namespace hasten
