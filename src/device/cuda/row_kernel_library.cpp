#include "device/cuda/row_kernel_library.h"

#include <cstdlib>
#include <string_view>

#include "base/environment_variable.h"
#include "device/cuda/nvml.h"
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

const RowKernelModule* replacement = nullptr;

enum class Choice { off, if_present, required };

Choice kernel_choice() {
  const std::string text = environment_variable("HASTEN_CUDA_KERNELS");
  if (text.empty()) return Choice::if_present;
  if (text == "0") return Choice::off;
  if (text == "1") return Choice::required;
  throw ConfigError("config.bad-value", {.what = "HASTEN_CUDA_KERNELS",
                                         .got = str("'", text, "'"),
                                         .expected = "1, or 0 for LibTorch's kernels"});
}

// CUDA 13 has no compiler for older GPUs.
constexpr int kMinCapability = 75;

bool has_compiled_code() { return compute_capability(0) >= kMinCapability; }

}  // namespace

bool has_row_kernel_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

bool has_gpu_row_kernels(at::ScalarType type) {
  if (!has_row_kernel_type(type)) return false;
  const Choice choice = kernel_choice();
  if (choice == Choice::off) return false;
  if (is_gpu_simulated()) return has_compiled_code();
  const bool is_required = choice == Choice::required;
  if (is_required) gpu_row_kernels();
  // The capability is read once, because operators ask for each call.
  static const bool has = has_compiled_code() && kernel_module().function != nullptr;
  return has || is_required;
}

void replace_gpu_row_kernels(const RowKernelModule* others) { replacement = others; }

const RowKernelModule& gpu_row_kernels() {
  if (replacement != nullptr) return *replacement;
  if (kernel_module().function == nullptr) {
    throw UsageError(
        "device.no-gpu-kernels",
        {.what = "the kernels that HASTEN_CUDA_KERNELS requires",
         .got = kernel_module().missing,
         .expected = "libhasten_row_kernels.so next to libhasten.so",
         .hint = "build hasten on a machine with CUDA's nvcc, or set the variable to 0"});
  }
  return *kernel_module().function();
}

}  // namespace hasten
