// File: plan/tpu_step.h (internal)
// Predicts the memory of a step on a TPU, in a fork, because a process has only one account of a
// TPU.
//
//   const TpuStep step = predict_on_tpu(options);        // options.device is "tpu:v5e:2x2"
//   if (step.stopped.empty()) std::cout << step.bytes;
//
// Throws UsageError "process.fork-after-tpu" in a process that has opened a TPU, RankError with
// what the estimate throws, and IoError "process.fork". Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "hasten/trainer/estimate.h"

namespace hasten {

struct TpuStep {
  std::int64_t bytes = 0;
  std::string stopped;  // The reason why the step cannot be made; empty: it can.
};

TpuStep predict_on_tpu(const EstimateOptions& options);

}  // namespace hasten
