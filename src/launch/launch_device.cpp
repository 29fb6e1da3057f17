#include "launch/launch_device.h"

#include <cstddef>

#include "launch/cuda_launch_device.h"
#include "tpu/launch/tpu_launch_device.h"

namespace hasten {
namespace {

const std::vector<const LaunchDevice*>& launch_devices() {
  static const std::vector<const LaunchDevice*> all = {&tpu_launch_device(), &cuda_launch_device()};
  return all;
}

}  // namespace

void choose_available_device(LaunchOptions& options) {
  for (const LaunchDevice* const each : launch_devices()) each->choose_if_available(options);
}

std::optional<std::int64_t> device_processes(const LaunchOptions& options) {
  for (const LaunchDevice* const each : launch_devices()) {
    if (const auto processes = each->processes(options)) return processes;
  }
  return std::nullopt;
}

std::vector<VariableList> device_variables(const LaunchOptions& options, const Round& round) {
  std::vector<VariableList> all(static_cast<std::size_t>(round.processes));
  for (const LaunchDevice* const each : launch_devices()) {
    const std::vector<VariableList> of_device = each->variables(options, round);
    for (std::size_t local = 0; local < all.size(); ++local)
      all[local].insert(all[local].end(), of_device[local].begin(), of_device[local].end());
  }
  return all;
}

std::string redact_device_variable(std::string variable) {
  for (const LaunchDevice* const each : launch_devices()) variable = each->redact(variable);
  return variable;
}

}  // namespace hasten
