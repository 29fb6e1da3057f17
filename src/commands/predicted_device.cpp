#include "commands/predicted_device.h"

#include <cstddef>

#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "tpu/commands/predicted_tpu.h"

namespace hasten {
namespace {

const std::vector<const PredictedDevice*>& predicted_devices() {
  static const std::vector<const PredictedDevice*> all = {&predicted_tpu()};
  return all;
}

}  // namespace

const PredictedDevice* predicted_device_of(std::string_view device) {
  const std::size_t colon = device.find(':');
  return colon == device.npos ? nullptr : predicted_device_of_option(device.substr(0, colon));
}

const PredictedDevice* predicted_device_of_option(std::string_view option) {
  for (const PredictedDevice* const each : predicted_devices()) {
    if (option == each->option()) return each;
  }
  return nullptr;
}

std::int64_t memory_limit_of(std::string_view device) {
  const bool is_gpu = device != "cpu" && predicted_device_of(device) == nullptr;
  return is_gpu ? find_gpu(device).memory : 0;
}

PredictedDeviceValues::PredictedDeviceValues() : texts_(predicted_devices().size()) {}

void PredictedDeviceValues::describe(config::OptionTable& table,
                                     const char* (PredictedDevice::*help)() const) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const PredictedDevice& kind = *predicted_devices()[i];
    config::Describer<Text> d(table, texts_[i]);
    d(kind.option(), &Text::value, (kind.*help)());
  }
}

}  // namespace hasten
