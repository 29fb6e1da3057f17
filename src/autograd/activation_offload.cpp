#include "hasten/autograd/activation_offload.h"

#include "autograd/offload_queue.h"

namespace hasten {
namespace {

at::Device device_of_parameters(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
}

OffloadPolicy::Choice choice_for(const torch::nn::Module& module, std::int64_t min_bytes) {
  OffloadPolicy::Choice choice{.min_bytes = min_bytes};
  const auto stay = [&choice](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& each : tensors) {
      if (each.defined() && each.has_storage())
        choice.resident.insert(each.storage().unsafeGetStorageImpl());
    }
  };
  stay(module.parameters());
  stay(module.buffers());
  return choice;
}

}  // namespace

struct ActivationOffload::Scope {
  Scope(at::Device device, OffloadPolicy::Choice choice)
      : policy(OffloadQueue::of_thread(device), std::move(choice)), scope(policy) {}
  OffloadPolicy policy;
  SavedTensorScope scope;
};

ActivationOffload::ActivationOffload(const torch::nn::Module& module, std::int64_t min_bytes) {
  const at::Device device = device_of_parameters(module);
  check_offload(device);
  scope_ = std::make_unique<Scope>(device, choice_for(module, min_bytes));
}

ActivationOffload::~ActivationOffload() = default;

}  // namespace hasten
