// File: launch/launch_device.h (internal)
// The differences between devices for those who start processes: how many processes a machine
// starts, and the variables that give each process its device. hasten launch and notebook_launcher
// ask all devices, and neither of them knows which ones there are.
//
//   const std::vector<VariableList> variables = device_variables(options, round);  // by local rank
//
// Thread rule: any thread, except that variables() may reserve ports for a moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/launch/launcher.h"
#include "hasten/options/launch_options.h"
#include "launch/rank_variables.h"

namespace hasten {

class LaunchDevice {
 public:
  LaunchDevice() = default;
  LaunchDevice(const LaunchDevice&) = delete;
  LaunchDevice& operator=(const LaunchDevice&) = delete;

  // Changes the options of processes that name no device, if such processes use this device.
  virtual void choose_if_available(LaunchOptions& options) const = 0;
  // Returns how many processes a machine starts if the options give no number, or nullopt if the
  // options do not choose the device and the machine does not have it.
  virtual std::optional<std::int64_t> processes(const LaunchOptions& options) const = 0;
  // Returns the variables of each process of this machine, by local rank. They may also be
  // necessary if the options do not choose the device.
  virtual std::vector<VariableList> variables(const LaunchOptions& options,
                                              const Round& round) const = 0;
  // Hides the values of a variable, NAME=value, that are chosen only when the processes start.
  virtual std::string redact(const std::string& variable) const = 0;

 protected:
  ~LaunchDevice() = default;
};

// Each of these functions asks all devices. The first device that gives a number of processes gives
// that of the machine.
HASTEN_INTERNAL_API void choose_available_device(LaunchOptions& options);
HASTEN_INTERNAL_API std::optional<std::int64_t> device_processes(const LaunchOptions& options);
HASTEN_INTERNAL_API std::vector<VariableList> device_variables(const LaunchOptions& options,
                                                               const Round& round);
std::string redact_device_variable(std::string variable);

}  // namespace hasten
