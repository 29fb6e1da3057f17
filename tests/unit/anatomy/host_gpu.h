// Simulates a GPU in a test: the tensors of device cuda:0 are in the host's memory. An allocation
// beyond the limit throws LibTorch's error. As with CUDA, the simulated GPU does not work in forks
// of a process that has used it: a fork ends when it uses the GPU.
//
//   use_host_gpu(200 << 20);                      // for the rest of the process
//   net->to(at::kCUDA);
#pragma once

#include <cstdint>

namespace hasten {

void use_host_gpu(std::int64_t limit);
void set_host_gpu_limit(std::int64_t limit);
// Returns how often the process has waited for all work of the GPU. Each wait takes 20 ms.
std::int64_t host_gpu_waits();

}  // namespace hasten
