#include "hasten/device/memory.h"

#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <iostream>

#include "device/simulated_gpu.h"

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

HostMemory host_memory() {
  HostMemory out;
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  if (statm >> pages >> resident) out.resident = resident * sysconf(_SC_PAGESIZE);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) out.peak_resident = usage.ru_maxrss * 1024;
  return out;
}

namespace {

std::optional<Nvml::Memory> nvml_memory(int index) {
  static const Nvml nvml;
  Nvml::Device device = nullptr;
  Nvml::Memory memory{};
  if (!nvml.ready || nvml.handle(static_cast<unsigned>(index), &device) != 0 ||
      nvml.memory(device, &memory) != 0)
    return std::nullopt;
  return memory;
}

}  // namespace

std::optional<std::int64_t> gpu_memory_used(int index) {
  if (simulated_gpu().used) return simulated_gpu().used();
  const auto memory = nvml_memory(index);
  return memory ? std::make_optional(static_cast<std::int64_t>(memory->used)) : std::nullopt;
}

std::optional<std::int64_t> gpu_memory_total(int index) {
  if (simulated_gpu().used) return simulated_gpu().total;
  const auto memory = nvml_memory(index);
  return memory ? std::make_optional(static_cast<std::int64_t>(memory->total)) : std::nullopt;
}

void print_gpu_utilization(std::ostream& out, int index) {
  if (const auto used = gpu_memory_used(index)) {
    out << "GPU memory occupied: " << *used / (1 << 20) << " MB.\n";
  } else {
    out << "Host memory occupied: " << host_memory().resident / (1 << 20) << " MB (no GPU).\n";
  }
}

void print_gpu_utilization() { print_gpu_utilization(std::cout); }

void empty_device_cache() {
  if (at::hasCUDA()) at::accelerator::emptyCache();
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace hasten
