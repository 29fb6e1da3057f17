#include "autograd/execution_state.h"

#include <ATen/autocast_mode.h>

#include <mutex>

#include "device/device.h"

namespace hasten {
namespace {

// Returns the devices that have autocast. A function may use a device that none of its inputs is
// on.
std::vector<at::DeviceType> autocast_types() {
  std::vector<at::DeviceType> types;
  for (const Device* const each : all_devices()) {
    if (at::autocast::is_autocast_available(each->type())) types.push_back(each->type());
  }
  return types;
}

}  // namespace

GeneratorStates GeneratorStates::capture(const std::vector<at::Device>& devices) {
  GeneratorStates all;
  const auto add = [&all](at::Device device) {
    for (const NamedGenerator& each : device_of(device).generators()) {
      at::Generator generator = each.generator;
      if (device.has_index() && generator.device().has_index() && generator.device() != device)
        continue;
      const std::lock_guard<std::mutex> lock(generator.mutex());
      all.states_.emplace_back(generator, generator.get_state());
    }
  };
  add(at::kCPU);
  for (const at::Device& device : devices) {
    if (!device.is_cpu()) add(device);
  }
  return all;
}

void GeneratorStates::restore() const {
  for (const auto& [generator, state] : states_) {
    at::Generator shared = generator;
    const std::lock_guard<std::mutex> lock(shared.mutex());
    shared.set_state(state);
  }
}

void GeneratorStates::report_memory() const {
  for (const auto& [generator, state] : states_) report_saved_tensor(state);
}

AutocastStates AutocastStates::capture() {
  AutocastStates all;
  for (const at::DeviceType type : autocast_types()) {
    all.settings_.push_back({.device = type,
                             .enabled = at::autocast::is_autocast_enabled(type),
                             .type = at::autocast::get_autocast_dtype(type)});
  }
  all.cache_enabled_ = at::autocast::is_autocast_cache_enabled();
  return all;
}

void AutocastStates::restore() const {
  for (const Setting& each : settings_) {
    at::autocast::set_autocast_enabled(each.device, each.enabled);
    at::autocast::set_autocast_dtype(each.device, each.type);
  }
  at::autocast::set_autocast_cache_enabled(cache_enabled_);
}

ExecutionState ExecutionState::capture(std::vector<at::Device> devices, bool with_generators) {
  return {.generators = with_generators ? GeneratorStates::capture(devices) : GeneratorStates(),
          .autocast = AutocastStates::capture(),
          .devices = std::move(devices),
          .with_generators = with_generators};
}

ExecutionStateScope::ExecutionStateScope(const ExecutionState& state)
    : before_(ExecutionState::capture(state.devices, state.with_generators)) {
  state.generators.restore();
  state.autocast.restore();
  // Casts of weights that autocast caches are discarded at the end of this scope.
  at::autocast::increment_nesting();
}

ExecutionStateScope::~ExecutionStateScope() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.autocast.restore();
  before_.generators.restore();
}

}  // namespace hasten
