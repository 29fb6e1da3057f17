#include <ATen/Context.h>

#include "device/known_devices.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "tpu/device/opened_tpu.h"
#include "tpu/device/tpu_dist.h"

namespace hasten {
namespace {

constexpr DeviceTraits kTraits = {
    .is_built_in = false,
    .defers_scalar_reads = true,
    .needs_static_shapes = true,
    .compiles_collectives = true,
    .needs_host_staging = true,
    .has_double = false,
    .has_sparse_tensors = false,
    .has_addresses = false,
    .has_linear_kernel = true,
    // torch_tpu keeps the gradients that its kernel has divided until the next step. They take as
    // much memory as the gradients themselves.
    .adamw = AdamWKernel::fused_without_gradscale,
    .takes_fp16_as_bf16 = true,
    .narrows_doubles_with_bf16 = true,
    .gathers_bf16_as_float = true,
    // A report of only some of the allocations would look complete.
    .reports_allocations = false,
    .merges_equal_operations = true,
};

// Returns tpu_dist if the TPUs can run programs together. Otherwise returns Gloo, and rank 0 logs
// this.
CollectiveChoice best_collectives(const Worker& worker) {
  if (tpus_can_communicate()) return CollectiveChoice::own;
  static const bool reported = [&] {  // once per process
    if (worker.rank == 0) {
      log_line(
          "hasten: PCI lists no TPU on this machine, so processes exchange tensors of device tpu "
          "with Gloo through host memory, which is slow. Set HASTEN_PROCESS_GROUP_BACKEND=tpu_dist "
          "to use the links between TPUs");
    }
    return true;
  }();
  static_cast<void>(reported);
  return CollectiveChoice::host;
}

class Tpu final : public Device {
 public:
  Tpu() : Device(at::kPrivateUse1, kTraits) {}

  bool is_available() const override { return unusable_tpu_reason().empty(); }
  bool is_open() const override { return tpu_is_open(); }
  bool is_chosen(const DeviceRequest& request) const override {
    if (request.required == "tpu") return true;
    const auto flag = config::environment_flag(request.environment, "ACCELERATE_USE_TPU");
    return flag ? *flag : machine_has_tpu();
  }
  // Returns the TPU of a single process, or the chip of a process that belongs to a job.
  Placement place(const Worker& worker, CollectiveChoice choice) const override {
    if (worker.world_size == 1) return {.device = tpu_device(), .collectives = choice};
    if (choice == CollectiveChoice::automatic) choice = best_collectives(worker);
    const TpuJob job = choice == CollectiveChoice::own ? TpuJob::one_slice : TpuJob::separate_chips;
    return {.device = tpu_device_of(worker, job), .collectives = choice};
  }

  const CollectiveBackend* collectives() const override { return &tpu_dist(); }

  std::int64_t compiled_programs() const override { return compiled_tpu_programs(); }

  MemoryFigures memory(int) const override {
    return {.missing =
                "the memory of a TPU cannot be measured (hasten estimate --tpu predicts it), and "
                "times are those of the program on the host, which runs ahead of the TPU"};
  }

  // A process has one TPU, which has a generator once it is open.
  std::vector<NamedGenerator> generators() const override {
    if (!tpu_is_open()) return {};
    return {{.name = "tpu", .generator = at::globalContext().defaultGenerator(tpu_device())}};
  }

  void check_fork() const override {
    if (!tpu_is_open()) return;
    throw UsageError("process.fork-after-tpu",
                     {.what = "notebook_launcher after the TPU was opened",
                      .got = "a connection to the TPU, which does not work in a fork",
                      .hint = "use the TPU only inside the function; in a notebook, restart the "
                              "kernel first"});
  }
};

}  // namespace

const Device& tpu() {
  static const Tpu one;
  return one;
}

}  // namespace hasten
