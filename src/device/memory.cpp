#include "hasten/device/memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <iostream>

#include "device/device.h"

namespace hasten {
namespace {

MemoryFigures memory_of_gpu(int index) { return device_of(at::kCUDA).memory(index); }

}  // namespace

HostMemory host_memory() {
  HostMemory out;
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  if (statm >> pages >> resident) out.resident = resident * sysconf(_SC_PAGESIZE);
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) out.peak_resident = usage.ru_maxrss * 1024;
  return out;
}

std::optional<std::int64_t> gpu_memory_used(int index) { return memory_of_gpu(index).used; }

std::optional<std::int64_t> gpu_memory_total(int index) { return memory_of_gpu(index).total; }

void print_gpu_utilization(std::ostream& out, int index) {
  if (const auto used = gpu_memory_used(index)) {
    out << "GPU memory occupied: " << *used / (1 << 20) << " MB.\n";
  } else {
    out << "Host memory occupied: " << host_memory().resident / (1 << 20) << " MB (no GPU).\n";
  }
}

void print_gpu_utilization() { print_gpu_utilization(std::cout); }

void empty_device_cache() {
  for (const Device* device : all_devices()) device->empty_cache();
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace hasten
