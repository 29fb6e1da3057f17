#include "process/group/native_group.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "device/collective_backend.h"
#include "device/device.h"
#include "process/backend/backend_wrappers.h"
#include "process/backend/call_checker.h"
#include "process/backend/gloo.h"
#include "process/consensus/store_exchange.h"

namespace hasten {
namespace {

using namespace std::chrono_literals;
using c10d::ProcessGroup;

// The time that is added to the limit of the backends, so that the watchdog first reports which
// rank is late. Gloo itself only reports that something was late.
constexpr auto kExtraLimitWithWatchdog = 30s;

// Returns whether the device's own backend carries its tensors. If the backend is negotiated, all
// ranks on the device get the same answer. It is false if a rank of the group is on another device.
bool uses_own_backend(const Device& device, const StoreSetup& setup, int size,
                      const GroupOptions& options) {
  const CollectiveBackend& own = *device.collectives();
  const bool is_here = options.device.type() == device.type();
  if (!own.is_negotiated()) return is_here && name_of(options.backend) == own.name();
  c10d::Store& store = *setup.store;
  if (!is_here || options.backend == ProcessGroupBackend::gloo) {
    set_false_on_all_ranks(store, own.name());
    return false;
  }
  own.check_encryption(setup.must_encrypt);
  const std::string missing = own.missing_reason();
  const bool all = is_true_on_all_ranks(store, own.name(), size, missing.empty());
  if (!all && options.backend != ProcessGroupBackend::automatic) own.throw_missing(missing);
  return all;
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> native_group(const StoreSetup& setup, int rank, int size,
                                              const GroupOptions& options,
                                              std::shared_ptr<CallLog> calls) {
  const auto& store = setup.store;
  const auto limit = options.timeout + (options.watchdog ? kExtraLimitWithWatchdog : 0s);
  const RankOptions own_rank{.rank = rank, .size = size, .limit = limit};
  const auto gloo = [&](const std::string& prefix, bool shared_memory) {
    return gloo_backend(c10::make_intrusive<c10d::PrefixStore>(prefix, store), own_rank,
                        {.address = setup.own_address,
                         .token = setup.token,
                         .encrypt = setup.encrypt,
                         .timeout = options.timeout,
                         .shared_memory = shared_memory,
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
  for (const Device* device : all_devices()) {
    if (device->collectives() != nullptr && uses_own_backend(*device, setup, size, options)) {
      const CollectiveBackend& own = *device->collectives();
      const CollectiveSettings settings{
          .store = c10::make_intrusive<c10d::PrefixStore>(own.name(), store),
          .rank = rank,
          .size = size,
          .device = options.device,
          .timeout = limit};
      group->setBackend(device->type(), own.type(), make_watched(own.make(settings), own.name()));
    } else if (!device->traits().needs_host_staging) {
      group->setBackend(device->type(), ProcessGroup::BackendType::GLOO, cpu_backend);
    } else if (options.device.type() == device->type()) {
      group->setBackend(device->type(), ProcessGroup::BackendType::CUSTOM,
                        make_host_staging_backend(cpu_backend));
    }
  }
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace hasten
