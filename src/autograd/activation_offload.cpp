#include "hasten/autograd/activation_offload.h"

#include "autograd/offload_queue.h"

namespace hasten {
namespace {

at::Device device_of_parameters(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
}

OffloadPolicy::Filter make_filter(const torch::nn::Module& module, std::int64_t min_bytes) {
  OffloadPolicy::Filter filter{.min_bytes = min_bytes};
  const auto stay = [&filter](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& each : tensors) {
      if (each.defined() && each.has_storage())
        filter.resident.insert(each.storage().unsafeGetStorageImpl());
    }
  };
  stay(module.parameters());
  stay(module.buffers());
  return filter;
}

}  // namespace

struct ActivationOffload::Scope {
  Scope(at::Device device, OffloadPolicy::Filter filter)
      : policy(OffloadQueue::of_thread(device), std::move(filter)), scope(policy) {}
  OffloadPolicy policy;
  SavedTensorScope scope;
};

ActivationOffload::ActivationOffload(const torch::nn::Module& module, std::int64_t min_bytes) {
  const at::Device device = device_of_parameters(module);
  check_offload(device);
  scope_ = std::make_unique<Scope>(device, make_filter(module, min_bytes));
}

ActivationOffload::~ActivationOffload() = default;

}  // namespace hasten
