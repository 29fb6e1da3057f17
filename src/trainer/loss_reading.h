// File: trainer/loss_reading.h (internal)
// Decides when a run reads its losses. Reading a loss waits for the device. A device with a long
// wait keeps the losses until they are needed.
//
//   const LossReading reading = loss_reading(traits, args, a_callback_uses_each_loss);
//
// Thread rule: any thread.
#pragma once

#include <torch/nn/module.h>

#include "device/device.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

enum class LossReading {
  each_batch,
  each_step,  // once, before the optimizer's step
  at_logs,    // also for checkpoints and for links of the hash chain, and every 512 steps
};

// `each_step_is_used` says whether a callback uses the loss of each step.
LossReading loss_reading(const DeviceTraits& traits, const TrainingArguments& args,
                         bool each_step_is_used = false);

// Returns whether a display of this run shows the losses that are logged, because the losses of
// single steps are not known.
bool shows_logged_losses(const torch::nn::Module& model, const TrainingArguments& args);
// Returns the device of the module's parameters, or the CPU if it has none.
at::Device device_of_model(const torch::nn::Module& model);

}  // namespace hasten
