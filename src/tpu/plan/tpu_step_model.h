// File: tpu/plan/tpu_step_model.h (internal)
// Predicts the memory of a step on a TPU. Each prediction runs in a forked process, because a
// process can have only one estimate of a TPU's memory.
//
//   const auto model = make_tpu_step_model(options.device);   // "tpu:v5e:2x2"
//   const StepPrediction step = model->predict(options);
//   if (step.rejection_reason.empty()) std::cout << step.cost.bytes;
//
// predict() throws UsageError "process.fork-after-tpu" in a process that has opened a TPU,
// RankError with the error of the estimate, and IoError "process.fork". Thread rule: one thread at
// a time.
#pragma once

#include <memory>
#include <string_view>

#include "plan/step_model.h"

namespace hasten {

// Returns null if the device is not a TPU.
std::unique_ptr<StepModel> make_tpu_step_model(std::string_view device);

}  // namespace hasten
