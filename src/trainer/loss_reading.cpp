#include "trainer/loss_reading.h"

namespace hasten {

LossReading loss_reading(const DeviceTraits& traits, const TrainingArguments& args,
                         bool each_step_is_used) {
  if (!traits.defers_scalar_reads) return LossReading::each_batch;
  return args.stop_on_nonfinite_loss || each_step_is_used ? LossReading::each_step
                                                          : LossReading::at_logs;
}

bool shows_logged_losses(const torch::nn::Module& model, const TrainingArguments& args) {
  const DeviceTraits& traits = device_of(device_of_model(model)).traits();
  return loss_reading(traits, args) == LossReading::at_logs;
}

at::Device device_of_model(const torch::nn::Module& model) {
  const auto parameters = model.parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
}

}  // namespace hasten
