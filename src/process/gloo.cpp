#include "process/gloo.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "hasten/base/text.h"
#include "process/agreement.h"
#include "process/observed_backend.h"

#ifndef USE_C10D_GLOO
#error "c10d's Gloo header is empty without USE_C10D_GLOO"
#endif

namespace hasten {
namespace {

using namespace std::chrono_literals;
using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

// By then the watchdog has told who is late; Gloo itself only says that something was.
constexpr auto kAfterTheWatchdog = 30s;

auto device_at(const std::string& address) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return ProcessGroupGloo::createDeviceForInterface(interface);
  return ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const std::string& address,
                                            const GroupOptions& options,
                                            std::shared_ptr<CallLog> calls) {
  const auto longest = options.timeout + (options.watchdog ? kAfterTheWatchdog : 0s);
  const auto gloo = [&](const char* prefix) {
    auto settings = ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(device_at(address));
    auto group = c10::make_intrusive<ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(prefix, store), rank, size, std::move(settings));
    group->setTimeout(longest);  // here, as making it waits for the other ranks too
    return group;
  };
  c10::intrusive_ptr<c10d::Backend> backend = gloo("gloo");
  std::unique_ptr<Agreement> agreement;
  if (options.debug) {
    const AgreementOptions agreed{.rank = rank, .size = size, .limit = longest};
    auto comparison = comparison_in_memory(*store, agreed);
    if (!comparison) comparison = comparison_by_messages(gloo("gloo to compare"));
    agreement = std::make_unique<Agreement>(std::move(comparison), store, agreed);
  }
  backend = observed(std::move(backend), std::move(calls), std::move(agreement));
  auto group = c10::make_intrusive<ProcessGroup>(store, rank, size);
  for (const at::DeviceType device : {at::kCPU, at::kCUDA})
    group->setBackend(device, ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace hasten
