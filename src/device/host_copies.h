// File: device/host_copies.h (internal)
// Copies tensors of a device to host memory and back while the computation runs.
//
//   HostCopies& copies = *make_host_copies(device);
//   HostCopies::Sent sent = copies.to_host(activation);      // returns at once
//   ...
//   HostCopies::Returned back = copies.to_device(sent.tensor, device);
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

class HostCopies {
 public:
  virtual ~HostCopies() = default;

  struct Sent {
    at::Tensor tensor;  // in host memory; its numbers arrive later
    // Blocks the host until the numbers have arrived.
    std::function<void()> wait;
  };
  struct Returned {
    at::Tensor tensor;  // is on the device; its numbers arrive later
    // Makes work that is submitted to the device from now on wait until the numbers have arrived.
    std::function<void()> wait;
  };
  // The tensor must be dense, without gaps or overlaps; the copy has its strides.
  virtual Sent to_host(const at::Tensor& tensor) = 0;
  // `host` comes from to_host().
  virtual Returned to_device(const at::Tensor& host, at::Device device) = 0;
};

// Returns copies that run while the computation runs if the traits of the device say
// copies_in_background.
std::unique_ptr<HostCopies> make_host_copies(at::Device device);

}  // namespace hasten
