// File: device/cuda/cuda_driver.h (internal)
// Asks NVIDIA's driver whether this process has initialized it, and for the address, the compute
// capability and the name of a GPU. The first use of a GPU initializes the driver, and so does
// counting the GPUs (torch::cuda::is_available(), and torch::manual_seed() if LibTorch has CUDA).
// From then on CUDA does not work in the forks of the process.
//
//   if (is_cuda_driver_initialized()) ...  // too late for a fork
//
// Source: cuDeviceGetCount, cuDeviceGetPCIBusId, cuDeviceGetAttribute and cuDeviceGetName in
// NVIDIA's CUDA driver API. Thread rule: any thread.
#pragma once

#include <optional>
#include <string>

namespace hasten {

// Asks the driver's library if it is loaded, and neither loads nor initializes it. `library` is the
// name or the path of the library, for a test.
bool is_cuda_driver_initialized(const char* library = "libcuda.so.1");

// Returns the PCI address of the GPU that CUDA and LibTorch call `index`, such as "0000:65:00.0".
// The text is empty if they have no such GPU. Returns nullopt if this process has not initialized
// the driver.
std::optional<std::string> pci_address_of_gpu(int index);

// Returns the compute capability of that GPU, such as 90 for 9.0, or 0 if CUDA has no such GPU.
// Returns nullopt if this process has not initialized the driver.
std::optional<int> compute_capability_of_gpu(int index);

// Returns the name of that GPU, such as "NVIDIA H200", or "" if CUDA has no such GPU. Returns
// nullopt if this process has not initialized the driver.
std::optional<std::string> name_of_gpu(int index);

}  // namespace hasten
