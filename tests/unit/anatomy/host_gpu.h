// A stand-in for a GPU in a test: a device cuda:0 whose tensors lie in the host's memory, with a
// limit and with LibTorch's words when it is reached. As with CUDA, it does not work in the forks
// of the process that has used it: each use of it there ends the fork.
//
//   use_host_gpu(200 << 20);                      // for the rest of the process
//   net->to(at::kCUDA);
#pragma once

#include <cstdint>

namespace hasten {

void use_host_gpu(std::int64_t limit);
void set_host_gpu_limit(std::int64_t limit);

}  // namespace hasten
