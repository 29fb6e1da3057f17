#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <torch/cuda.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device/collective_backend.h"
#include "device/cuda/cuda_driver.h"
#include "device/cuda/cuda_graphs.h"
#include "device/cuda/cuda_library_loader.h"
#include "device/cuda/nccl.h"
#include "device/cuda/nvml.h"
#include "device/cuda/row_kernel_library.h"
#include "device/cuda/simulated_gpu.h"
#include "device/known_devices.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

bool has_gpu() {
  load_cuda_library();
  return torch::cuda::is_available();
}

std::int64_t gpus() {
  return has_gpu() ? static_cast<std::int64_t>(torch::cuda::device_count()) : 0;
}

at::Device gpu(std::int64_t index) {
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

void report_unknown_capability() {
  static std::once_flag once;
  std::call_once(once, [] {
    log_line(
        "hasten: neither CUDA's driver nor NVML (libnvidia-ml.so.1) knows the compute capability "
        "of the GPU, so attention pads packed rows, which takes more time");
  });
}

// Keeps the capability of each GPU once it is known, because attention asks for each call. Returns
// 0 if it is not known.
int known_capability(int index) {
  if (is_gpu_simulated()) return compute_capability(index);
  thread_local std::map<int, int> known;
  int& capability = known[index];
  if (capability == 0) capability = compute_capability(index);
  if (capability == 0) report_unknown_capability();
  return capability;
}

class Cuda final : public Device {
 public:
  Cuda()
      : Device(at::kCUDA, {// A wait leaves the GPU idle until the host has submitted more.
                           .defers_scalar_reads = true,
                           .product_alignment = 16,
                           .bytes_of_logits = 256 << 20,
                           .has_reserved_memory = true,
                           .allocation_unit = 512,
                           .copies_from_pinned_memory = true,
                           .copies_in_background = true,
                           .can_be_simulated = true}) {}

  bool is_available() const override { return has_gpu(); }
  bool is_chosen(const DeviceRequest&) const override { return has_gpu(); }
  bool is_simulated() const override { return is_gpu_simulated(); }
  std::size_t appearance() const override {
    return is_gpu_simulated() ? 2 : is_cuda_library_loaded() ? 1 : 0;
  }
  // Uses the GPU of the local rank, modulo the number of GPUs.
  Placement place(const Worker& worker, CollectiveChoice choice) const override {
    return {.device = gpu(worker.local_rank % std::max<std::int64_t>(1, gpus())),
            .collectives = choice};
  }

  const CollectiveBackend* collectives() const override { return &nccl(); }

  bool has_kernels(at::ScalarType type) const override { return has_gpu_row_kernels(type); }

  // The conditions are those of the kernels in LibTorch 2.11. On some GPUs the shared memory is too
  // small for the backward pass of FlashAttention with wide heads.
  PackedAttention packed_attention(at::ScalarType type, std::int64_t head_size,
                                   int index) const override {
    const at::Context& context = at::globalContext();
    const int capability = known_capability(index);
    const bool is_ampere = capability >= 80, is_short = at::isReducedFloatingType(type),
               is_small = capability == 86 || capability == 89 || capability >= 120;
    if (is_short && is_ampere && head_size % 8 == 0 && head_size <= (is_small ? 192 : 256) &&
        context.userEnabledFlashSDP())
      return PackedAttention::flash;
    const bool has_type =
        type == at::kFloat || type == at::kHalf || (type == at::kBFloat16 && is_ampere);
    const std::int64_t alignment = is_short ? 8 : is_ampere ? 4 : 1;
    const bool is_supported = capability >= 50 && has_type && head_size % alignment == 0;
    return is_supported && context.userEnabledMemEfficientSDP() ? PackedAttention::efficient
                                                                : PackedAttention::none;
  }

  GraphSupport graphs(int index) const override { return cuda_graphs(index); }

  bool set_tf32(int index, bool is_on) const override {
    if (compute_capability(index) < 80) return false;
    const auto precision = is_on ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
    for (const auto operation : {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN})
      at::globalContext().setFloat32Precision(at::Float32Backend::CUDA, operation, precision);
    return true;
  }

  std::string driver_name(int index) const override {
    return is_gpu_simulated() ? "" : name_of_gpu(std::max(index, 0)).value_or("");
  }

  MemoryFigures memory(int index) const override {
    MemoryFigures memory = nvml_memory(index);
    if (memory.used.value_or(0) == 0) {
      memory.missing =
          "NVML (libnvidia-ml.so.1) is unavailable, so the GPU's context and capacity are unknown";
    }
    return memory;
  }
  // Does not load the library for a run on the CPU.
  bool is_profiled() const override {
    return !is_gpu_simulated() && at::hasCUDA() && torch::cuda::is_available();
  }
  void empty_cache() const override {
    if (is_available()) at::accelerator::emptyCache();
  }
  std::optional<AllocatedBytes> allocated(int index) const override {
    if (!is_available()) return std::nullopt;
    const auto all =
        at::accelerator::getDeviceStats(static_cast<c10::DeviceIndex>(std::max(index, 0)))
            .allocated_bytes[0];  // element 0 counts the blocks of all sizes
    return AllocatedBytes{.current = all.current, .peak = all.peak};
  }
  void reset_allocated_peak(int index) const override {
    if (is_available())
      at::accelerator::resetPeakStats(static_cast<c10::DeviceIndex>(std::max(index, 0)));
  }

  std::vector<NamedGenerator> generators() const override {
    std::vector<NamedGenerator> all;
    for (std::int64_t index = 0; index < gpus(); ++index) {
      all.push_back({.name = str("cuda.", index),
                     .generator = at::globalContext().defaultGenerator(gpu(index))});
    }
    return all;
  }

  // Neither loads the library nor counts the GPUs, because CUDA does not work in the forks of a
  // process that has done so.
  void check_fork() const override {
    if (!is_gpu_simulated() && !is_cuda_driver_initialized()) return;
    throw UsageError(
        "process.fork-after-cuda",
        {.what = "notebook_launcher after CUDA was used",
         .got =
             "a process that has used a GPU or counted the GPUs; CUDA does not work in its forks",
         .hint = "use the GPU only inside the function; in a notebook, restart the kernel first"});
  }
};

}  // namespace

const Device& cuda() {
  static const Cuda one;
  return one;
}

}  // namespace hasten
