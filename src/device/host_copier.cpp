#include "device/host_copier.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "device/device.h"

namespace hasten {
namespace {

// Copies with LibTorch's interface for the streams of any device.
class StreamHostCopier final : public HostCopier {
 public:
  explicit StreamHostCopier(at::Device device)
      : guard_(device.type()),
        device_(device),
        side_(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/false)),
        pins_(device_of(device).traits().copies_from_pinned_memory) {}

  HostCopy to_host(const at::Tensor& tensor) override {
    const at::Tensor host = at::empty_strided(
        tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).pinned_memory(pins_));
    wait_for(guard_.getStream(device_), side_);
    copy_on_side_stream(host, tensor);
    // The allocator does not reuse the memory before the copy is done.
    guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), side_);
    return {.tensor = host, .wait = [arrived = record_event()] { arrived->synchronize(); }};
  }

  DeviceCopy to_device(const at::Tensor& host, at::Device device) override {
    const at::Tensor tensor = at::empty_strided(host.sizes(), host.strides(),
                                                host.options().device(device).pinned_memory(false));
    // An earlier computation that has not finished may still use the memory.
    wait_for(guard_.getStream(device_), side_);
    copy_on_side_stream(tensor, host);
    guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), side_);
    return {.tensor = tensor, .wait = [this, arrived = record_event()] {
              arrived->block(guard_.getStream(device_));
            }};
  }

 private:
  // Returns an event for all copies that have been submitted.
  std::shared_ptr<c10::Event> record_event() const {
    auto event = std::make_shared<c10::Event>(device_.type());
    event->record(side_);
    return event;
  }
  // Makes `waiting` wait for everything that has been submitted to `stream`.
  void wait_for(const c10::Stream& stream, const c10::Stream& waiting) {
    c10::Event event(device_.type());
    event.record(stream);
    event.block(waiting);
  }
  void copy_on_side_stream(const at::Tensor& to, const at::Tensor& from) {
    struct OnStream {
      OnStream(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream)
          : guard(guard), before(guard.exchangeStream(stream)) {}
      ~OnStream() { guard.exchangeStream(before); }
      const c10::impl::VirtualGuardImpl& guard;
      c10::Stream before;
    } const on_stream(guard_, side_);
    to.copy_(from, /*non_blocking=*/true);
  }

  c10::impl::VirtualGuardImpl guard_;
  at::Device device_;
  c10::Stream side_;
  bool pins_;
};

// Copies before the call returns.
class SynchronousHostCopier final : public HostCopier {
 public:
  HostCopy to_host(const at::Tensor& tensor) override {
    return {.tensor = copied(tensor, at::kCPU), .wait = [] {}};
  }
  DeviceCopy to_device(const at::Tensor& host, at::Device device) override {
    return {.tensor = copied(host, device), .wait = [] {}};
  }

 private:
  static at::Tensor copied(const at::Tensor& tensor, at::Device device) {
    return tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  }
};

}  // namespace

std::unique_ptr<HostCopier> make_host_copier(at::Device device) {
  if (device_of(device).traits().copies_in_background)
    return std::make_unique<StreamHostCopier>(device);
  return std::make_unique<SynchronousHostCopier>();
}

}  // namespace hasten
