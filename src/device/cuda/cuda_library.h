// File: device/cuda/cuda_library.h (internal)
// Loads LibTorch's CUDA library (hasten/device/cuda_library.h), from another file in a test.
//
//   const std::string reason = load_cuda_library({.driver = file, .file = library});
//
// LibTorch keeps who answers its questions about CUDA from the first question on, which
// torch::manual_seed asks, too. So the one that has been kept is replaced. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

#include "hasten/device/cuda_library.h"

namespace hasten {

struct CudaLibrary {
  // Files that exist if the machine has NVIDIA's driver: the second one under WSL.
  std::filesystem::path driver = "/dev/nvidiactl", other_driver = "/dev/dxg";
  std::filesystem::path file;  // empty: libtorch_cuda.so in the folder of libtorch_cpu.so
};

// Loads the library if the machine has a driver and LibTorch has the library. Returns why it does not
// load; "" if it is loaded or not needed.
std::string load_cuda_library(const CudaLibrary& library);

// Returns whether this process has loaded the library with one of these functions. False if the
// program links it.
bool is_cuda_library_loaded();

}  // namespace hasten
