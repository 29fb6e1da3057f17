#include "device/host_traffic.h"

#include <cstddef>

namespace hasten {
namespace {

std::atomic<HostTraffic*> living = nullptr;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

HostTraffic::HostTraffic() { living = this; }
HostTraffic::~HostTraffic() { living = nullptr; }

HostTraffic::Bytes HostTraffic::bytes(Purpose purpose) const {
  const Counters& counters = counters_[static_cast<std::size_t>(purpose)];
  return {.to_host = counters.to_host, .to_device = counters.to_device};
}

void HostTraffic::count_to_host(Purpose purpose, const at::Tensor& copied) {
  if (HostTraffic* const traffic = living)
    traffic->counters_[static_cast<std::size_t>(purpose)].to_host += bytes_of(copied);
}

void HostTraffic::count_to_device(Purpose purpose, const at::Tensor& copied) {
  if (HostTraffic* const traffic = living)
    traffic->counters_[static_cast<std::size_t>(purpose)].to_device += bytes_of(copied);
}

}  // namespace hasten
