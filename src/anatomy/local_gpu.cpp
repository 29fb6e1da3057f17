#include "anatomy/local_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "device/cuda/nvml.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"

namespace hasten::anatomy {

Gpu local_gpu(at::Device device) {
  constexpr int kDefaultCapability = 80;
  constexpr std::int64_t kUnlimited = std::int64_t{1} << 50;
  const int known = compute_capability(device.index());
  const int capability = known > 0 ? known : kDefaultCapability;
  const std::int64_t memory = nvml_memory(device.index()).total.value_or(0);
  const auto distance = [&](const Gpu& gpu) {
    return std::tuple(gpu.compute_capability > capability,
                      std::abs(capability - gpu.compute_capability), std::abs(gpu.memory - memory));
  };
  Gpu gpu = *std::min_element(gpus().begin(), gpus().end(), [&](const Gpu& a, const Gpu& b) {
    return distance(a) < distance(b);
  });
  gpu.compute_capability = capability;
  gpu.memory = kUnlimited;
  return gpu;
}

const Gpu* known_gpu(at::Device device) {
  if (const Gpu* const simulated = DryRun::gpu()) return simulated;
  return find_gpu_of_driver(device_of(device).driver_name(device.index()));
}

}  // namespace hasten::anatomy
