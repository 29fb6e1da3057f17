// File: device/cuda/cuda_library.h (internal)
// Loads LibTorch's CUDA library. A program that links hasten links LibTorch's CPU library only, so
// that it also starts on a machine without NVIDIA's libraries. Without the CUDA library LibTorch
// reports that there is no GPU.
//
//   load_cuda_library();
//   at::hasCUDA();                  // now also true for a program that does not link the library
//
// LibTorch keeps who answers its questions about CUDA from the first question on, which
// torch::manual_seed asks, too. So the one that has been kept is replaced. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace hasten {

struct CudaLibrary {
  // Files that exist if the machine has NVIDIA's driver: the second one under WSL.
  std::filesystem::path driver = "/dev/nvidiactl", other_driver = "/dev/dxg";
  std::filesystem::path file;  // empty: libtorch_cuda.so in the folder of libtorch_cpu.so
};

// Loads the library if the machine has a driver and LibTorch has the library. Returns why it does not
// load; "" if it is loaded or not needed.
std::string load_cuda_library(const CudaLibrary& library);

// The same once in a process, and not while a GPU is simulated. A library that does not load is
// logged, because the process then uses the CPU.
void load_cuda_library();

}  // namespace hasten
