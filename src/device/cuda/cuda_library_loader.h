// File: device/cuda/cuda_library_loader.h (internal)
// Loads LibTorch's CUDA library (hasten/device/cuda_library.h), from another file in a test.
//
//   const std::string reason = load_cuda_library({.driver = file, .file = library});
//
// At the first question about CUDA, LibTorch creates the object that answers such questions, and
// keeps it. torch::manual_seed asks such a question too. Loading the library therefore replaces
// that object. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

#include "hasten/device/cuda_library.h"

namespace hasten {

struct CudaLibrary {
  // Files that exist if the machine has NVIDIA's driver: the second one under WSL.
  std::filesystem::path driver = "/dev/nvidiactl", other_driver = "/dev/dxg";
  std::filesystem::path file;  // if empty, libtorch_cuda.so in the folder of libtorch_cpu.so
};

// Loads the library if the machine has a driver and LibTorch has the library. Returns why it does
// not load; "" if it is loaded or not needed.
std::string load_cuda_library(const CudaLibrary& library);

// Returns whether one of these functions has loaded the library into this process. False if the
// program links it.
bool is_cuda_library_loaded();

}  // namespace hasten
