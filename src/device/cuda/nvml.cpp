#include "device/cuda/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/parse_number.h"
#include "device/cuda/cuda_driver.h"
#include "device/cuda/simulated_gpu.h"
#include "hasten/base/text.h"

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
  int (*handle_by_address)(const char*, Device*) = nullptr;  // may be missing
  int (*handle_by_uuid)(const char*, Device*) = nullptr;     // may be missing
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
    handle_by_address = reinterpret_cast<int (*)(const char*, Device*)>(
        dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    handle_by_uuid = reinterpret_cast<int (*)(const char*, Device*)>(
        dlsym(library, "nvmlDeviceGetHandleByUUID"));
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

// Finds a GPU by its entry in CUDA_VISIBLE_DEVICES, which is a number or a whole UUID. Returns
// NVML's error, or 0.
int find_visible_device(const Nvml& nvml, int index, Nvml::Device* device) {
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (variable == nullptr) return nvml.handle(static_cast<unsigned>(index), device);
  constexpr int kNotFound = 6;  // NVML_ERROR_NOT_FOUND
  const std::vector<std::string> entries = split(variable, ',');
  const auto at = static_cast<std::size_t>(index);
  if (at >= entries.size()) return kNotFound;
  const std::string entry(trim(entries[at]));
  if (const auto number = parse_number<unsigned>(entry)) return nvml.handle(*number, device);
  return nvml.handle_by_uuid ? nvml.handle_by_uuid(entry.c_str(), device) : kNotFound;
}

// Returns NVML's device for LibTorch's index of a GPU, or nullptr. LibTorch counts only the visible
// GPUs, by default the fastest first. NVML counts all GPUs in the order of their PCI addresses.
// Until this process has initialized the driver, the order of the visible GPUs is not known, and
// the numbers in CUDA_VISIBLE_DEVICES are taken as NVML's.
Nvml::Device find_device(const Nvml& nvml, int index) {
  if (!nvml.ready) return nullptr;
  index = std::max(index, 0);
  Nvml::Device device = nullptr;
  const std::optional<std::string> address =
      nvml.handle_by_address ? pci_address_of_gpu(index) : std::nullopt;
  const int error = address ? nvml.handle_by_address(address->c_str(), &device)
                            : find_visible_device(nvml, index, &device);
  return error == 0 ? device : nullptr;
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
  if (const auto known = compute_capability_of_gpu(std::max(index, 0))) return *known;
  const Nvml& nvml = loaded_nvml();
  const Nvml::Device device = find_device(nvml, index);
  int major = 0, minor = 0;
  if (!device || !nvml.capability || nvml.capability(device, &major, &minor) != 0) return 0;
  return 10 * major + minor;
}

MemoryFigures nvml_memory(int index) {
  if (simulated_gpu().used) return {.used = simulated_gpu().used(), .total = simulated_gpu().total};
  const Nvml& nvml = loaded_nvml();
  const Nvml::Device device = find_device(nvml, index);
  if (!device) return {};
  if (Nvml::MemoryWithReserved memory;
      nvml.memory_with_reserved && nvml.memory_with_reserved(device, &memory) == 0)
    return figures(memory.used, memory.total);
  if (Nvml::Memory memory{}; nvml.memory(device, &memory) == 0)
    return figures(memory.used, memory.total);
  return {};
}

}  // namespace hasten
