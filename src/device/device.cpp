#include "device/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "device/graph_recorder.h"
#include "device/known_devices.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// A device of LibTorch that hasten does not know. It has the default traits.
struct OtherDevice final : Device {
  OtherDevice() : Device(at::kMeta, {}) {}
};

std::atomic<const Device*> replacement = nullptr;

}  // namespace

GraphSupport Device::graphs(int) const {
  return {.missing = str("a device (", c10::DeviceTypeName(type_, /*lower_case=*/true),
                         ") that has no graphs of operations")};
}

const std::vector<const Device*>& all_devices() {
  static const std::vector<const Device*> all = {&cpu(), &cuda(), &tpu()};
  return all;
}

const Device& device_of(at::Device device) {
  const Device* const replaced = replacement.load(std::memory_order_relaxed);
  if (replaced != nullptr && replaced->type() == device.type()) return *replaced;
  for (const Device* each : all_devices()) {
    if (each->type() == device.type()) return *each;
  }
  static const OtherDevice other;
  return other;
}

DeviceReplacement::DeviceReplacement(const Device& device)
    : before_(replacement.exchange(&device)) {}

DeviceReplacement::~DeviceReplacement() { replacement = before_; }

const Device& choose_device(const DeviceRequest& request) {
  if (request.cpu) return cpu();
  const auto& all = all_devices();
  return **std::find_if(all.rbegin(), all.rend(), [&](const Device* each) {
    return (each->traits().is_built_in || !request.only_built_in) && each->is_chosen(request);
  });
}

void synchronize(at::Device device) {
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

bool is_added_device_open() {
  return std::any_of(all_devices().begin(), all_devices().end(),
                     [](const Device* each) { return each->is_open(); });
}

std::size_t device_appearances() {
  std::size_t all = 0;
  for (const Device* each : all_devices()) all = all * Device::kAppearances + each->appearance();
  return all;
}

bool is_pinning_useful() {
  return std::any_of(all_devices().begin(), all_devices().end(), [](const Device* each) {
    return each->traits().copies_from_pinned_memory && each->is_available();
  });
}

}  // namespace hasten
