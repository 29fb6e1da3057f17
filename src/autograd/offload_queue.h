// File: autograd/offload_queue.h (internal)
// Keeps saved tensors in host memory until the backward pass, in the order in which the forward
// pass saved them. The backward pass needs them in the opposite order. When it asks for one, the
// copies of the tensors before it begin.
//
//   const auto queue = OffloadQueue::of_thread(device);
//   OffloadPolicy policy(queue, {.min_bytes = 1 << 20});
//   const SavedTensorScope scope(policy);
//
// A tensor that is saved several times is copied once. Thread rule: any thread; calls of the hooks
// of one queue are serialized.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/saved_tensors.h"
#include "device/host_copier.h"

namespace hasten {

class OffloadQueue : public std::enable_shared_from_this<OffloadQueue> {
 public:
  explicit OffloadQueue(std::unique_ptr<HostCopier> copies) : copies_(std::move(copies)) {}
  // Returns the queue of this thread for a device.
  static std::shared_ptr<OffloadQueue> of_thread(at::Device device);

  // A tensor that was copied to host memory. The graph shares it.
  struct Entry {
    std::size_t index;
    at::Tensor host;
    at::Device device;
    HostCopier::DeviceCopy device_copy = {};
    KeptTensor on_device = {};  // set once the backward pass has asked for it
  };
  // Copies the tensor, unless it is already in the queue.
  std::shared_ptr<Entry> put(const at::Tensor& tensor);
  at::Tensor get(Entry& entry);

 private:
  // The number of tensors that are copied back ahead of the backward pass.
  static constexpr std::size_t kPrefetchCount = 2;

  // The memory and the shape of a tensor that is in the queue.
  struct QueuedTensor {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::int64_t offset;
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type;
    std::int64_t version;
    std::weak_ptr<Entry> entry;
    bool matches(const at::Tensor& tensor) const;
  };

  void start_copy_to_device(Entry& entry);

  std::mutex mutex_;
  std::unique_ptr<HostCopier> copies_;
  std::deque<std::weak_ptr<Entry>> entries_;
  std::unordered_map<const void*, std::vector<QueuedTensor>> queued_;
};

class OffloadPolicy final : public SavedTensorPolicy {
 public:
  struct Filter {
    std::int64_t min_bytes = 0;
    // Memory that stays on the device, such as the memory of parameters.
    std::unordered_set<const c10::StorageImpl*> resident = {};
  };
  OffloadPolicy(std::shared_ptr<OffloadQueue> queue, Filter filter)
      : queue_(std::move(queue)), filter_(std::make_shared<Filter>(std::move(filter))) {}
  std::unique_ptr<SavedVariableHooks> hooks() override;

 private:
  class Hooks;
  std::shared_ptr<OffloadQueue> queue_;
  std::shared_ptr<const Filter> filter_;
};

// Throws UsageError "autograd.offload" if tensors of the device cannot be moved to host memory.
void check_offload(at::Device device);

// Keeps the inputs of a region in host memory until the backward pass, except parameters.
class [[nodiscard]] InputOffload {
 public:
  explicit InputOffload(const std::vector<at::Tensor>& inputs);

 private:
  std::optional<OffloadPolicy> policy_;
  std::optional<SavedTensorScope> scope_;
};

}  // namespace hasten
