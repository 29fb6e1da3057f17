// File: hasten/device/cuda_library.h
// Loads LibTorch's CUDA library into a program that links LibTorch's CPU library only, as hasten's
// own programs do. Without it LibTorch reports that there is no GPU.
//
//   load_cuda_library();  // at the start of main()
//   const at::Device device = torch::cuda::is_available() ? at::kCUDA : at::kCPU;
//   const at::Tensor points = torch::randn({100, 2}, device);
//
// An Accelerator, a Trainer and everything else in hasten that looks for a GPU load the library
// themselves. A program needs this function only if it uses a GPU before it makes one of them, or
// without any of them. Call it at the start: autograd has no thread for a GPU that appears after
// the first backward pass. (An Accelerator adds the missing thread.) Processes of notebook_launcher
// may use a GPU after a call in the process that starts them.
//
// Nothing happens on a machine without NVIDIA's driver, with a LibTorch that has no CUDA library,
// if the program links the library, or while a GPU is simulated (hasten/anatomy/dry_run.h). Throws
// nothing: if the library cannot be loaded, this is logged (hasten/base/log.h), and the process
// uses the CPU. Thread rule: any thread, while no other thread runs a model.
#pragma once

#include "hasten/base/detail/export.h"

namespace hasten {

// Loads the library at the first call in a process; later calls do nothing.
HASTEN_API void load_cuda_library();

}  // namespace hasten
