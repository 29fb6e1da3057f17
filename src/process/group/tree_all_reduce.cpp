#include "process/group/tree_all_reduce.h"

#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

namespace hasten {

TreeAllReduce::TreeAllReduce(Group group, std::int64_t buffer_bytes)
    : group_(std::move(group)), buffer_bytes_(buffer_bytes) {
  // hasten's backend of Gloo allocates memory for its ranks if, and only if, they share memory.
  if (group_.size() > 1)
    shares_memory_ = group_.native()->getBackend(c10::DeviceType::CPU)->supportsTensorAlloc(0);
}

void TreeAllReduce::sum(const std::vector<at::Tensor>& tensors) {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const CallScope scope(group_, "gradients");
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> of_type;
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(of_type),
                 [&](const at::Tensor& each) { return each.scalar_type() == type; });
    if (!of_type.empty()) sum_of_type(of_type, type);
  }
}

// Copies the numbers to the buffer and back, chunk by chunk, because a tensor may fill it several
// times.
void TreeAllReduce::sum_of_type(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  const at::Tensor buffer = buffer_of(type);
  const std::int64_t capacity = buffer.numel();
  std::vector<std::pair<at::Tensor, at::Tensor>> chunks;  // each in a tensor and in the buffer
  std::int64_t used = 0;
  const auto flush = [&] {
    sum_buffer(buffer, used);
    for (const auto& [own, summed] : chunks) own.copy_(summed);
    chunks.clear();
    used = 0;
  };
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor numbers = tensor.view({-1});
    for (std::int64_t at = 0; at < numbers.numel();) {
      const std::int64_t count = std::min(numbers.numel() - at, capacity - used);
      chunks.emplace_back(numbers.narrow(0, at, count), buffer.narrow(0, used, count));
      chunks.back().second.copy_(chunks.back().first);
      at += count;
      used += count;
      if (used == capacity) flush();
    }
  }
  if (used > 0) flush();
}

at::Tensor TreeAllReduce::buffer_of(at::ScalarType type) {
  at::Tensor& buffer = buffers_[type];
  if (buffer.defined()) return buffer;
  // The number of elements is a multiple of the number of ranks, so that all shares have the same
  // size.
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(type));
  const std::int64_t elements =
      std::max<std::int64_t>(1, buffer_bytes_ / bytes / group_.size()) * group_.size();
  buffer = shares_memory_ ? group_.native()
                                ->getBackend(c10::DeviceType::CPU)
                                ->allocateTensor(elements, at::dtype(type))
                          : at::empty({elements}, at::dtype(type));
  return buffer;
}

void TreeAllReduce::sum_buffer(const at::Tensor& buffer, std::int64_t count) {
  if (shares_memory_) {
    std::vector<at::Tensor> tensors = {buffer.narrow(0, 0, count)};
    group_.native()->allreduce(tensors)->wait();  // sums along a tree (process/shared)
    return;
  }
  const std::int64_t ranks = group_.size(), padded = (count + ranks - 1) / ranks * ranks;
  buffer.narrow(0, count, padded - count).zero_();
  sum_by_messages(buffer.narrow(0, 0, padded));
}

void TreeAllReduce::sum_by_messages(at::Tensor used) {
  at::Tensor shares = at::empty_like(used);  // this rank's share of every rank's numbers
  std::vector<std::int64_t> equal;           // empty means that all shares have the same size
  group_.native()->alltoall_base(shares, used, equal, equal)->wait();
  at::Tensor terms = shares.view({group_.size(), -1});
  for (std::int64_t ranks = group_.size(); ranks > 1; ranks /= 2) {
    const at::Tensor pairs = terms.view({ranks / 2, 2, -1});
    terms = pairs.select(1, 0) + pairs.select(1, 1);
  }
  used.copy_(group_.gather(terms.reshape({-1})));
}

}  // namespace hasten
