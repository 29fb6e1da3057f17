// File: device/cuda/cuda_driver.h (internal)
// Asks whether this process has initialized NVIDIA's driver. The first use of a GPU initializes it,
// and so does counting the GPUs (torch::cuda::is_available(), and torch::manual_seed() if LibTorch
// has CUDA). From then on CUDA does not work in the forks of the process.
//
//   if (is_cuda_driver_initialized()) ...  // too late for a fork
//
// Source: cuDeviceGetCount in NVIDIA's CUDA driver API. Thread rule: any thread.
#pragma once

namespace hasten {

// Asks the driver's library if it is loaded, and neither loads nor initializes it. `library` is the
// name or the path of the library, for a test.
bool is_cuda_driver_initialized(const char* library = "libcuda.so.1");

}  // namespace hasten
