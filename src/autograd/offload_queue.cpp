#include "autograd/offload_queue.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "device/device.h"
#include "device/host_traffic.h"
#include "hasten/base/error.h"

namespace hasten {

std::shared_ptr<OffloadQueue> OffloadQueue::of_thread(at::Device device) {
  thread_local std::vector<std::pair<at::Device, std::shared_ptr<OffloadQueue>>> all;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == device; });
  if (found != all.end()) return found->second;
  return all.emplace_back(device, std::make_shared<OffloadQueue>(make_host_copier(device))).second;
}

bool OffloadQueue::QueuedTensor::matches(const at::Tensor& tensor) const {
  return !storage.expired() && !entry.expired() && offset == tensor.storage_offset() &&
         sizes == tensor.sizes() && strides == tensor.strides() && type == tensor.scalar_type() &&
         version == tensor._version();
}

std::shared_ptr<OffloadQueue::Entry> OffloadQueue::put(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  std::vector<QueuedTensor>& same_memory = queued_[tensor.storage().unsafeGetStorageImpl()];
  // The memory may have been used by tensors that the graph no longer has.
  std::erase_if(same_memory, [](const QueuedTensor& known) { return known.entry.expired(); });
  for (const QueuedTensor& known : same_memory) {
    if (known.matches(tensor)) return known.entry.lock();
  }
  while (!entries_.empty() && entries_.back().expired()) entries_.pop_back();
  if (entries_.empty()) {  // a forward pass begins
    queued_.clear();
  }
  const at::NoGradGuard no_grad;
  HostTraffic::count_to_host(HostTraffic::Purpose::activations, tensor);
  const auto entry = std::make_shared<Entry>(Entry{.index = entries_.size(),
                                                   .host = copies_->to_host(tensor).tensor,
                                                   .device = tensor.device()});
  entries_.push_back(entry);
  queued_[tensor.storage().unsafeGetStorageImpl()].push_back(
      {.storage = c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
       .offset = tensor.storage_offset(),
       .sizes = tensor.sizes().vec(),
       .strides = tensor.strides().vec(),
       .type = tensor.scalar_type(),
       .version = static_cast<std::int64_t>(tensor._version()),
       .entry = entry});
  return entry;
}

void OffloadQueue::start_copy_to_device(Entry& entry) {
  if (entry.device_copy.tensor.defined() || entry.on_device) return;
  entry.device_copy = copies_->to_device(entry.host, entry.device);
  HostTraffic::count_to_device(HostTraffic::Purpose::activations, entry.device_copy.tensor);
  report_saved_tensor(entry.device_copy.tensor);
}

at::Tensor OffloadQueue::get(Entry& entry) {
  const std::lock_guard lock(mutex_);
  if (entry.on_device) return entry.on_device.get();
  const at::NoGradGuard no_grad;
  start_copy_to_device(entry);
  entry.device_copy.wait();
  entry.on_device = KeptTensor(entry.device_copy.tensor);
  entry.device_copy = {};
  std::size_t begun = 0;
  for (std::size_t index = std::min(entry.index, entries_.size());
       index > 0 && begun < kPrefetchCount;) {
    const auto before = entries_[--index].lock();
    if (!before || before->on_device) continue;
    start_copy_to_device(*before);
    ++begun;
  }
  queue_callback_if_graph_is_kept([queue = shared_from_this(), index = entry.index] {
    const std::lock_guard again(queue->mutex_);
    if (index >= queue->entries_.size()) return;
    if (const auto kept = queue->entries_[index].lock()) kept->on_device = {};
  });
  return entry.on_device.get();
}

// Copies the tensor to host memory, or keeps it if it is not chosen.
class OffloadPolicy::Hooks final : public SavedVariableHooks {
 public:
  Hooks(std::shared_ptr<OffloadQueue> queue, std::shared_ptr<const Filter> filter)
      : queue_(std::move(queue)), filter_(std::move(filter)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (passes_filter(tensor)) {
      entry_ = queue_->put(tensor);
    } else {
      kept_ = KeptTensor(tensor);
    }
  }
  at::Tensor call_unpack_hook() override { return entry_ ? queue_->get(*entry_) : kept_.get(); }

 private:
  bool passes_filter(const at::Tensor& tensor) const {
    const bool is_parameter = tensor.is_leaf() && tensor.requires_grad();
    return tensor.layout() == at::kStrided && !tensor.is_cpu() && !is_parameter &&
           tensor.is_non_overlapping_and_dense() &&
           static_cast<std::int64_t>(tensor.nbytes()) >= filter_->min_bytes && tensor.numel() > 0 &&
           filter_->resident.count(tensor.storage().unsafeGetStorageImpl()) == 0;
  }

  std::shared_ptr<OffloadQueue> queue_;
  std::shared_ptr<const Filter> filter_;
  std::shared_ptr<OffloadQueue::Entry> entry_;
  KeptTensor kept_;
};

std::unique_ptr<SavedVariableHooks> OffloadPolicy::hooks() {
  return std::make_unique<Hooks>(queue_, filter_);
}

void check_offload(at::Device device) {
  if (device_of(device).traits().copies_in_background) return;
  throw UsageError(
      "autograd.offload",
      {.what = "activations in host memory",
       .got = device.is_cpu() ? "a model on the CPU, whose activations are there already"
                              : "a model on the device " + device.str() +
                                    ", which cannot copy while it computes",
       .expected = "a model on a GPU",
       .hint = "use recomputation (activation_checkpointing) instead"});
}

InputOffload::InputOffload(const std::vector<at::Tensor>& inputs) {
  // Inputs on the CPU, such as a list of lengths, stay on the CPU.
  auto first = std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
    return input.defined() && !input.is_cpu();
  });
  if (first == inputs.end()) {
    first = std::find_if(inputs.begin(), inputs.end(),
                         [](const at::Tensor& input) { return input.defined(); });
  }
  if (first == inputs.end()) return;
  check_offload(first->device());
  policy_.emplace(OffloadQueue::of_thread(first->device()), OffloadPolicy::Filter{});
  scope_.emplace(*policy_);
}

}  // namespace hasten
