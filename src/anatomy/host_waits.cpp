#include "anatomy/host_waits.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>

#include "device/device.h"

namespace hasten::anatomy {
namespace {

bool is_simulated(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         device_of(value.toTensor().device()).is_simulated();
}

// Returns the direction of a copy that blocks, or "" if it does not block.
std::string_view blocking_copy(c10::ArrayRef<c10::IValue> arguments) {
  const bool to_gpu = is_simulated(arguments[0]), from_gpu = is_simulated(arguments[1]);
  if (to_gpu == from_gpu || arguments[2].toBool()) return "";
  return to_gpu ? "copy to the GPU" : "copy from the GPU";
}

}  // namespace

void HostWaits::add_call(std::string_view name, c10::ArrayRef<c10::IValue> arguments) {
  static const std::set<std::string_view> reading = {
      "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",
      "aten::masked_select",       "aten::_unique2", "aten::unique_dim",
      "aten::unique_consecutive",  "aten::_unique",  "aten::bincount"};
  if (name == "aten::copy_") {
    const std::string_view direction = blocking_copy(arguments);
    if (!direction.empty()) add(direction);
  } else if (reading.count(name) > 0 &&
             std::any_of(arguments.begin(), arguments.end(), is_simulated)) {
    add(name);
  }
}

void HostWaits::add(std::string_view what) {
  const std::lock_guard lock(mutex_);
  ++causes_[std::string(what)];
}

std::int64_t HostWaits::total() const {
  std::int64_t all = 0;
  for (const auto& [cause, count] : by_cause()) all += count;
  return all;
}

std::map<std::string, std::int64_t> HostWaits::by_cause() const {
  const std::lock_guard lock(mutex_);
  return causes_;
}

}  // namespace hasten::anatomy
