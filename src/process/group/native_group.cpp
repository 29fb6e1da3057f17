#include "process/group/native_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "hasten/base/error.h"
#include "process/backend/call_checker.h"
#include "process/backend/gloo.h"
#include "process/backend/host_staging_backend.h"
#include "process/backend/nccl.h"
#include "process/backend/observed_backend.h"
#include "process/consensus/store_exchange.h"
#include "process/tpu_dist.h"

namespace hasten {
namespace {

using namespace std::chrono_literals;
using c10d::ProcessGroup;

// Added to the limit of the backends, so that the watchdog reports first which rank is late. Gloo
// itself only reports that something was late.
constexpr auto kExtraLimitWithWatchdog = 30s;

// Throws if encryption was requested, because NCCL does not encrypt between machines.
void check_encryption_by_nccl(const StoreSetup& setup) {
  if (!setup.must_encrypt) return;
  throw ConfigError(
      "process.encryption",
      {.what = "encryption between machines",
       .got = "NCCL, which does not encrypt",
       .hint = "omit --encrypt (HASTEN_ENCRYPT) in a network that you trust (CPU tensors are then "
               "still encrypted if the job has a token), or set "
               "HASTEN_PROCESS_GROUP_BACKEND=gloo, which is slow"});
}

// Returns whether NCCL carries the tensors of a GPU. All ranks that have a GPU get the same answer:
// no if a rank of the group has none.
bool uses_nccl(const StoreSetup& setup, int size, const GroupOptions& options) {
  const std::string question = "nccl";
  c10d::Store& store = *setup.store;
  if (!options.device.is_cuda() || options.backend == ProcessGroupBackend::gloo) {
    deny_for_all(store, question);
    return false;
  }
  check_encryption_by_nccl(setup);
  const std::string missing = missing_nccl_reason();
  const bool all = is_true_on_all_ranks(store, question, size, missing.empty());
  if (all || options.backend == ProcessGroupBackend::automatic) return all;
  throw UsageError(
      "process.no-nccl",
      {.what = "backend nccl",
       .got = missing.empty() ? "a rank that cannot load it" : missing,
       .expected = "libhasten_nccl.so next to libhasten.so, and LibTorch's CUDA library",
       .hint =
           "build hasten on a machine with nccl.h and CUDA's headers, or do not choose a backend: "
           "Gloo then carries GPU tensors through the CPU"});
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> native_group(const StoreSetup& setup, int rank, int size,
                                              const GroupOptions& options,
                                              std::shared_ptr<CallLog> calls) {
  const auto& store = setup.store;
  const auto limit = options.timeout + (options.watchdog ? kExtraLimitWithWatchdog : 0s);
  const RankOptions own_rank{.rank = rank, .size = size, .limit = limit};
  const auto gloo = [&](const std::string& prefix, bool in_memory) {
    return gloo_backend(c10::make_intrusive<c10d::PrefixStore>(prefix, store), own_rank,
                        {.address = setup.own_address,
                         .token = setup.token,
                         .encrypt = setup.encrypt,
                         .timeout = options.timeout,
                         .shared_memory = in_memory,
                         .device_type = options.device.is_cpu() ? "cpu" : "gpu"});
  };
  // Wraps a backend so that its calls are recorded and, with `debug`, compared before they run.
  const auto make_watched = [&](c10::intrusive_ptr<c10d::Backend> backend,
                                const std::string& name) {
    std::unique_ptr<CallChecker> checker;
    if (options.debug) {
      const auto own_store = c10::make_intrusive<c10d::PrefixStore>("compared " + name, store);
      auto comparison = make_shared_comparison(*own_store, own_rank);
      if (!comparison) comparison = make_message_comparison(gloo("compare " + name, false));
      checker = std::make_unique<CallChecker>(std::move(comparison), own_store, own_rank);
    }
    return make_observed_backend(std::move(backend), calls, std::move(checker));
  };
  auto group = c10::make_intrusive<ProcessGroup>(store, rank, size);
  const auto cpu_backend = make_watched(gloo("gloo", options.shared_memory), "gloo");
  group->setBackend(at::kCPU, ProcessGroup::BackendType::GLOO, cpu_backend);
  if (uses_nccl(setup, size, options)) {
    const NcclSettings settings{.store = c10::make_intrusive<c10d::PrefixStore>("nccl", store),
                                .rank = rank,
                                .size = size,
                                .device = options.device,
                                .timeout = limit};
    group->setBackend(at::kCUDA, ProcessGroup::BackendType::NCCL,
                      make_watched(nccl_backend(settings), "nccl"));
  } else {
    group->setBackend(at::kCUDA, ProcessGroup::BackendType::GLOO, cpu_backend);
  }
  if (options.device.is_privateuseone()) {
    const TpuDistSettings settings{
        .store = c10::make_intrusive<c10d::PrefixStore>("tpu_dist", store),
        .rank = rank,
        .size = size,
        .timeout = limit};
    const bool uses_tpu_dist = options.backend == ProcessGroupBackend::tpu_dist;
    group->setBackend(at::kPrivateUse1, ProcessGroup::BackendType::CUSTOM,
                      uses_tpu_dist ? make_watched(tpu_dist_backend(settings), "tpu_dist")
                                    : make_host_staging_backend(cpu_backend));
  }
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace hasten
