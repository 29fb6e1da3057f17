// File: hasten/device/memory.h
// How much memory a run takes: of this process on the host, and of a GPU as nvidia-smi shows it.
//
//   print_gpu_utilization();                  // "GPU memory occupied: 1343 MB." or the host's,
//   where there is no GPU HostMemory host = host_memory();
//
// Units: bytes. The GPU is asked through NVML, loaded at run time; without the library or a GPU
// there is no figure. Source of the two printed lines: the Transformers documentation's example of
// model training anatomy. Thread rule: any thread. Nothing here throws.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

namespace hasten {

struct HostMemory {
  std::int64_t resident = 0;       // in RAM now
  std::int64_t peak_resident = 0;  // the most it has been
};
HostMemory host_memory();

// Used by all processes together on GPU `index`, contexts included. In a dry run for a GPU
// (hasten/anatomy/dry_run.h) what this process would use.
std::optional<std::int64_t> gpu_memory_used(int index = 0);
// What GPU `index` has in all.
std::optional<std::int64_t> gpu_memory_total(int index = 0);

// The documentation's line: "GPU memory occupied: 14949 MB." Without a GPU: "Host memory occupied:
// 712 MB (no GPU)."
void print_gpu_utilization(std::ostream& out, int index = 0);
void print_gpu_utilization();  // on standard output

// Gives the GPU's cached but unused blocks back to its driver; nothing without a GPU.
void empty_device_cache();

// The host's allocator keeps freed memory for the next step instead of giving it back to the system
// and fetching new pages: a training step frees and allocates the same large blocks over and over.
// For programs; call it once, at the start.
void keep_freed_memory();

}  // namespace hasten
