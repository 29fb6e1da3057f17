// File: device/host_copier.h (internal)
// Copies tensors of a device to host memory and back while the computation runs.
//
//   HostCopier& copier = *make_host_copier(device);
//   HostCopier::HostCopy sent = copier.to_host(activation);  // returns at once
//   ...
//   HostCopier::DeviceCopy back = copier.to_device(sent.tensor, device);
//   back.wait();                                             // the computation waits, not the host
//
// Host memory is pinned if that makes copies faster. On a device with streams the copies run on a
// separate stream, in the order in which they were requested. A copy begins when the computation
// that was submitted before it is done. On other devices a copy is done when the call returns.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace hasten {

class HostCopier {
 public:
  virtual ~HostCopier() = default;

  struct HostCopy {
    at::Tensor tensor;  // in host memory; its numbers arrive later
    // Blocks the host until the numbers have arrived.
    std::function<void()> wait;
  };
  struct DeviceCopy {
    at::Tensor tensor;  // is on the device; its numbers arrive later
    // Makes work that is submitted to the device from now on wait until the numbers have arrived.
    std::function<void()> wait;
  };
  // The tensor must be dense, without gaps or overlaps; the copy has its strides.
  virtual HostCopy to_host(const at::Tensor& tensor) = 0;
  // `host` comes from to_host().
  virtual DeviceCopy to_device(const at::Tensor& host, at::Device device) = 0;
};

// Returns a copier that copies while the computation runs if the traits of the device say
// copies_in_background.
std::unique_ptr<HostCopier> make_host_copier(at::Device device);

}  // namespace hasten
