// File: hasten/device/memory.h
// Reports how much memory a run uses: this process on the host, and a GPU as nvidia-smi shows it.
//
//   print_gpu_utilization();                    // "GPU memory occupied: 1343 MB.", or the host's
//   const HostMemory host = host_memory();
//   host.peak_resident;                         // bytes
//
// Units: bytes; the printed lines are in units of 2^20 bytes. GPU figures come from NVML, which is
// loaded at run time; without the library or a GPU they are missing. Source of the two printed
// lines: the Transformers documentation's example of model training anatomy. Thread rule: any
// thread. Nothing here throws.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "hasten/base/detail/export.h"

namespace hasten {

struct HostMemory {
  std::int64_t resident = 0;       // In RAM now.
  std::int64_t peak_resident = 0;  // The most so far.
};
HASTEN_API HostMemory host_memory();

// Memory of GPU `index` that all processes together use, including their contexts. In a dry run for
// a GPU (hasten/anatomy/dry_run.h): the memory that this process would use.
HASTEN_API std::optional<std::int64_t> gpu_memory_used(int index = 0);
// The total memory of GPU `index`.
HASTEN_API std::optional<std::int64_t> gpu_memory_total(int index = 0);

// Prints the documentation's line, "GPU memory occupied: 14949 MB.", or without a GPU "Host memory
// occupied: 712 MB (no GPU)."
HASTEN_API void print_gpu_utilization(std::ostream& out, int index = 0);
HASTEN_API void print_gpu_utilization();  // On standard output.

// Returns cached, unused blocks of the GPU's memory to its driver. No effect without a GPU.
HASTEN_API void empty_device_cache();

// Makes the host's allocator keep freed memory instead of returning it to the system, since a
// training step frees and allocates the same large blocks over and over. Call it once, at the start
// of a program.
HASTEN_API void keep_freed_memory();

}  // namespace hasten
