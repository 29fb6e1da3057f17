#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>

#include "device/cuda/simulated_gpu.h"

namespace hasten {
namespace {

// The NVML functions that are needed, declared by their documented C signatures, because nvml.h is
// not installed on every machine that has the library.
struct Nvml {
  struct Memory {
    unsigned long long total, free, used;
  };
  // As in nvidia-smi, `used` excludes what the driver keeps for itself: 616 MiB on an H200.
  struct MemoryWithReserved {
    unsigned version = sizeof(MemoryWithReserved) | 2U << 24;
    unsigned long long total = 0, reserved = 0, free = 0, used = 0;
  };
  using Device = struct nvmlDevice_st*;
  int (*init)() = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*memory_with_reserved)(Device, MemoryWithReserved*) = nullptr;  // missing before driver 510
  int (*capability)(Device, int*, int*) = nullptr;                     // may be missing
  bool ready = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    handle = reinterpret_cast<int (*)(unsigned, Device*)>(
        dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    memory = reinterpret_cast<int (*)(Device, Memory*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
    memory_with_reserved = reinterpret_cast<int (*)(Device, MemoryWithReserved*)>(
        dlsym(library, "nvmlDeviceGetMemoryInfo_v2"));
    capability = reinterpret_cast<int (*)(Device, int*, int*)>(
        dlsym(library, "nvmlDeviceGetCudaComputeCapability"));
    ready = init && handle && memory && init() == 0;
  }
};

SimulatedGpu& simulated_gpu() {
  static SimulatedGpu current;
  return current;
}
std::atomic<bool> simulates_gpu = false;

MemoryFigures figures(unsigned long long used, unsigned long long total) {
  return {.used = static_cast<std::int64_t>(used), .total = static_cast<std::int64_t>(total)};
}

const Nvml& loaded_nvml() {
  static const Nvml one;
  return one;
}

}  // namespace

void set_simulated_gpu(SimulatedGpu gpu) {
  simulates_gpu = false;
  simulated_gpu() = std::move(gpu);
  simulates_gpu = static_cast<bool>(simulated_gpu().used);
}

bool is_gpu_simulated() { return simulates_gpu; }

std::unique_ptr<GraphRecorder> simulated_graph_recorder() {
  return simulated_gpu().graph_recorder ? simulated_gpu().graph_recorder() : nullptr;
}

int compute_capability(int index) {
  if (simulated_gpu().used) return simulated_gpu().compute_capability;
  Nvml::Device device = nullptr;
  int major = 0, minor = 0;
  const Nvml& nvml = loaded_nvml();
  if (!nvml.ready || !nvml.capability ||
      nvml.handle(static_cast<unsigned>(std::max(index, 0)), &device) != 0 ||
      nvml.capability(device, &major, &minor) != 0)
    return 0;
  return 10 * major + minor;
}

MemoryFigures nvml_memory(int index) {
  if (simulated_gpu().used) return {.used = simulated_gpu().used(), .total = simulated_gpu().total};
  const Nvml& nvml = loaded_nvml();
  Nvml::Device device = nullptr;
  if (!nvml.ready || nvml.handle(static_cast<unsigned>(index), &device) != 0) return {};
  if (Nvml::MemoryWithReserved memory;
      nvml.memory_with_reserved && nvml.memory_with_reserved(device, &memory) == 0)
    return figures(memory.used, memory.total);
  if (Nvml::Memory memory{}; nvml.memory(device, &memory) == 0)
    return figures(memory.used, memory.total);
  return {};
}

}  // namespace hasten
