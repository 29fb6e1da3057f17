#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include "device/cuda/simulated_gpu.h"

namespace hasten {
namespace {

// The NVML functions that are needed, by their documented C signatures, because nvml.h is not
// installed everywhere the library is.
struct Nvml {
  struct Memory {
    unsigned long long total, free, used;
  };
  using Device = struct nvmlDevice_st*;
  int (*init)() = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  bool ready = false;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    handle = reinterpret_cast<int (*)(unsigned, Device*)>(
        dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    memory = reinterpret_cast<int (*)(Device, Memory*)>(dlsym(library, "nvmlDeviceGetMemoryInfo"));
    ready = init && handle && memory && init() == 0;
  }
};

SimulatedGpuMemory& simulated_gpu() {
  static SimulatedGpuMemory current;
  return current;
}

}  // namespace

void set_simulated_gpu_memory(SimulatedGpuMemory gpu) { simulated_gpu() = std::move(gpu); }

MemoryFigures nvml_memory(int index) {
  if (simulated_gpu().used) return {.used = simulated_gpu().used(), .total = simulated_gpu().total};
  static const Nvml nvml;
  Nvml::Device device = nullptr;
  Nvml::Memory memory{};
  if (!nvml.ready || nvml.handle(static_cast<unsigned>(index), &device) != 0 ||
      nvml.memory(device, &memory) != 0)
    return {};
  return {.used = static_cast<std::int64_t>(memory.used),
          .total = static_cast<std::int64_t>(memory.total)};
}

}  // namespace hasten
