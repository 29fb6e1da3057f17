#include "device/cuda/row_kernel_library.h"

#include <cstdlib>
#include <string_view>

#include "device/cuda/simulated_gpu.h"
#include "device/loadable_module.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

const Module<const RowKernelModule*()>& kernel_module() {
  static const auto once =
      load_module<const RowKernelModule*()>("libhasten_row_kernels.so", "hasten_row_kernels");
  return once;
}

bool are_kernels_requested() {
  const char* const value = std::getenv("HASTEN_CUDA_KERNELS");
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  throw ConfigError("config.bad-value", {.what = "HASTEN_CUDA_KERNELS",
                                         .got = str("'", text, "'"),
                                         .expected = "1, or 0 for LibTorch's kernels"});
}

}  // namespace

bool has_row_kernel_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

bool has_gpu_row_kernels(at::ScalarType type) {
  if (!has_row_kernel_type(type) || !are_kernels_requested()) return false;
  if (!is_gpu_simulated()) gpu_row_kernels();
  return true;
}

const RowKernelModule& gpu_row_kernels() {
  if (kernel_module().function == nullptr) {
    throw UsageError("device.no-gpu-kernels",
                     {.what = "HASTEN_CUDA_KERNELS=1",
                      .got = kernel_module().missing,
                      .expected = "libhasten_row_kernels.so next to libhasten.so",
                      .hint = "build hasten on a machine with CUDA's nvcc, or set it to 0"});
  }
  return *kernel_module().function();
}

}  // namespace hasten
