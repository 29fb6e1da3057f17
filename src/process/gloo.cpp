#include "process/gloo.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <utility>

#include "hasten/base/text.h"

#ifndef USE_C10D_GLOO
#error "c10d's Gloo header is empty without USE_C10D_GLOO"
#endif

namespace hasten {
namespace {

using c10d::ProcessGroup;
using c10d::ProcessGroupGloo;

auto device_at(const std::string& address) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    return ProcessGroupGloo::createDeviceForInterface(interface);
  return ProcessGroupGloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<ProcessGroup> gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const std::string& address,
                                            const GroupOptions& options) {
  const auto gloo = [&](const char* prefix) {
    auto settings = ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(device_at(address));
    return c10::make_intrusive<ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>(prefix, store), rank, size, std::move(settings));
  };
  c10::intrusive_ptr<c10d::Backend> backend = gloo("gloo");
  // Compares by a group of its own what each rank is about to do.
  if (options.debug)
    backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, gloo("gloo to compare"));
  auto group = c10::make_intrusive<ProcessGroup>(store, rank, size);
  for (const at::DeviceType device : {at::kCPU, at::kCUDA})
    group->setBackend(device, ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace hasten
