// File: hasten/config/gpus.h
// The GPUs that a prediction can be made for on a machine without one: how much memory they have,
// what of it a process loses before its first tensor, and which kernels LibTorch picks there.
//
//   const Gpu& gpu = find_gpu("cuda:v100-16gb");
//   gpu.memory - gpu.context;                    // bytes left for tensors
//
// Units: bytes, FLOP a second, bytes a second. Memory is what CUDA tells a program, which is less
// than the card's label. Sources: NVIDIA's data sheets for the roofs, LibTorch's own out-of-memory
// messages in public issue threads for memory and context; docs/anatomy.md, "Which GPUs". Needs no
// torch. Thread rule: constants.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hasten {

struct Gpu {
  std::string_view name;       // after "cuda:", as in cuda:v100-16gb
  std::string_view title;      // NVIDIA's
  int compute_capability = 0;  // 70 for 7.0
  int multiprocessors = 0, threads_per_multiprocessor = 0;
  std::int64_t memory = 0;      // in all
  std::int64_t context = 0;     // context, loaded kernels and libraries of one training process
  double flops_per_second = 0;  // float, without tensor cores
  double bf16_flops_per_second = 0;  // by tensor cores, dense; 0: none
  double bytes_per_second = 0;
};

const std::vector<Gpu>& gpus();

// A table of them for a terminal.
std::string gpus_text();

// "cuda:NAME". Throws ConfigError "config.unknown-device" with the names there are.
const Gpu& find_gpu(std::string_view device);

}  // namespace hasten
