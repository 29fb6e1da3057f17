// File: commands/predicted_device.h (internal)
// The differences between kinds of device for the commands that predict a step on a device which
// need not be installed: the option that selects the device, and what its prediction needs and
// reports. The commands ask the kind of the device of a prediction and do not know which kinds
// there are.
//
//   const PredictedDevice* const kind = predicted_device_of("tpu:v5e:2x2");   // --tpu v5e:2x2
//   if (kind != nullptr) kind->variables(packages);          // HASTEN_DRY_TPU_COMPILER=...
//
// The CPU and GPUs (hasten/machine/gpus.h) have no PredictedDevice: every command predicts for
// them. Needs no torch. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/environment.h"
#include "options/describe.h"

namespace hasten {

class PredictedDevice {
 public:
  PredictedDevice() = default;
  PredictedDevice(const PredictedDevice&) = delete;
  PredictedDevice& operator=(const PredictedDevice&) = delete;

  // Returns the name of the option that selects a device of this kind, such as "tpu". A device's
  // name begins with it and a colon.
  virtual const char* option() const = 0;
  // Return the help texts of the option: for the step of a model, and for a program.
  virtual const char* help_for_model() const = 0;
  virtual const char* help_for_program() const = 0;
  // Returns the name of the device that a value of the option selects: "tpu:v5e:2x2" for "v5e:2x2".
  // Throws ConfigError "config.unknown-device".
  virtual std::string parse(const std::string& value) const = 0;

  // Returns the kind of device, for messages: "a TPU".
  virtual const char* title() const = 0;
  // Returns whether a report shows single allocations.
  virtual bool reports_allocations() const = 0;
  // Returns whether a report on a program shows a prediction on the CPU next to its own figures.
  virtual bool is_compared_with_cpu() const = 0;
  // Returns the environment variables that the process of a prediction needs. `packages` is a
  // folder of Python packages. Throws IoError if something is missing that a prediction needs.
  virtual config::Environment variables(const std::filesystem::path& packages) const = 0;

 protected:
  ~PredictedDevice() = default;
};

// Returns the kind of the device with this name, or null for the CPU and GPUs.
HASTEN_INTERNAL_API const PredictedDevice* predicted_device_of(std::string_view device);
// Returns the kind of device that the option with this name selects, or null.
const PredictedDevice* predicted_device_of_option(std::string_view option);

// Returns the memory of the device with this name if it limits a prediction, otherwise 0: only GPUs
// have such a limit.
HASTEN_INTERNAL_API std::int64_t memory_limit_of(std::string_view device);

// The values of the options of all kinds. An option table points into them.
class PredictedDeviceValues {
 public:
  PredictedDeviceValues();
  // Adds the options, with one of the two help texts of their kinds.
  void describe(config::OptionTable& table, const char* (PredictedDevice::*help)() const);

 private:
  struct Text {
    std::string value;
  };
  std::vector<Text> texts_;  // in the order of the kinds
};

}  // namespace hasten
