#include "hasten/prepare/detail/to_device.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <utility>

#include "device/device.h"

namespace hasten::detail {
namespace {

using c10::impl::VirtualGuardImpl;

// Returns the stream on which batches are copied to a device. It is always the same one, because
// LibTorch's allocator keeps separate memory for each stream.
c10::Stream stream_of_batches(at::Device device) {
  // A simulated GPU replaces the guard of its type, and has other streams.
  using Key = std::pair<const c10::impl::DeviceGuardImplInterface*, c10::DeviceIndex>;
  static std::mutex mutex;
  static std::map<Key, c10::Stream> streams;
  const auto* const guard = c10::impl::getDeviceGuardImpl(device.type());
  const Key key{guard, device.index()};
  const std::lock_guard lock(mutex);
  const auto found = streams.find(key);
  if (found != streams.end()) return found->second;
  const c10::Stream made = guard->getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  return streams.emplace(key, made).first->second;
}

bool is_copied_in_background(const at::Tensor& tensor, at::Device device) {
  // The copy of a sparse or nested tensor has several parts, which recordDataPtrOnStream() would
  // not reach.
  return tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_nested() &&
         device_of(device).traits().copies_in_background;
}

}  // namespace

at::Tensor BatchCopy::copy(const at::Tensor& tensor) {
  if (is_copied_in_background(tensor, device_)) return copy_in_background(tensor);
  return tensor.to(device_, /*non_blocking=*/tensor.is_pinned());
}

// The allocator takes the memory from that of the copying stream. Memory of the computing stream
// may still be in use by earlier computations, so the copy would have to wait for them.
at::Tensor BatchCopy::copy_in_background(const at::Tensor& tensor) {
  const VirtualGuardImpl guard(device_.type());
  if (!streams_) {
    if (!device_.has_index()) device_ = guard.getDevice();
    streams_.emplace(
        Streams{.computing = guard.getStream(device_), .copying = stream_of_batches(device_)});
  }
  at::Tensor copied;
  {
    const c10::StreamGuard on_copying(streams_->copying);
    copied = tensor.to(device_, /*non_blocking=*/tensor.is_pinned());
  }
  // The memory is not used for a later batch before the computing stream is done with this one.
  guard.recordDataPtrOnStream(copied.storage().data_ptr(), streams_->computing);
  return copied;
}

void BatchCopy::finish() {
  if (!streams_) return;
  c10::Event copied(device_.type());
  copied.record(streams_->copying);
  copied.block(streams_->computing);
}

}  // namespace hasten::detail
