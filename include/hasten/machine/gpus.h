// File: hasten/machine/gpus.h
// The GPUs for which hasten can predict a run on a machine without a GPU: their memory, the part of
// it that a process uses before its first tensor, and their speed.
//
//   const Gpu& gpu = find_gpu("cuda:v100-16gb");
//   gpu.memory - gpu.context;                    // bytes left for tensors
//
// Units: bytes, FLOP per second, bytes per second. `memory` is what CUDA reports to a program,
// which is less than the card's label. Sources: NVIDIA's data sheets for the speed, LibTorch's
// out-of-memory messages in public issue threads for memory and context, except that the contexts
// of the H100 80 GB and the H200 are measured (docs/anatomy.md, "Which GPUs"). Needs no torch.
// find_gpu() throws ConfigError "config.unknown-device" for an unknown name.
// Thread rule: constants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

struct Gpu {
  std::string_view name;       // The part after "cuda:", such as v100-16gb.
  std::string_view title;      // NVIDIA's name, such as "Tesla V100 16 GB".
  int compute_capability = 0;  // 70 for 7.0; LibTorch selects kernels by it.
  int multiprocessors = 0, threads_per_multiprocessor = 0;
  std::int64_t memory = 0;  // All memory of the GPU.
  // The CUDA context, loaded kernels and libraries of one training process.
  std::int64_t context = 0;
  double flops_per_second = 0;       // In float, without tensor cores.
  double bf16_flops_per_second = 0;  // On tensor cores, dense; 0 if unsupported.
  double bytes_per_second = 0;
  double fp16_flops_per_second = 0;  // On tensor cores, dense, with sums in float.
  double tf32_flops_per_second = 0;  // For products of floats in TF32; 0 if unsupported.
};

// All known GPUs.
HASTEN_API const std::vector<Gpu>& gpus();

// Formats them as a table for a terminal.
HASTEN_API std::string gpus_text();

// Finds a GPU by the name that NVIDIA's driver gives it, such as "NVIDIA H100 80GB HBM3". Returns
// null for other cards, also for variants of a known card with other rates, such as "NVIDIA H100
// PCIe".
HASTEN_API const Gpu* find_gpu_of_driver(std::string_view driver_name);

// Finds a GPU by "cuda:NAME". Throws ConfigError "config.unknown-device", which lists the names.
HASTEN_API const Gpu& find_gpu(std::string_view device);

}  // namespace hasten
