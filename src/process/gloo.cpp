#include "process/gloo.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

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
                                            std::chrono::milliseconds timeout) {
  const auto options = ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(device_at(address));
  const auto own = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  const auto gloo = c10::make_intrusive<ProcessGroupGloo>(own, rank, size, options);
  auto group = c10::make_intrusive<ProcessGroup>(store, rank, size);
  for (const at::DeviceType device : {at::kCPU, at::kCUDA})
    group->setBackend(device, ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace hasten
