#include "autograd/saved_tensors.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>

#include "autograd/engine.h"

namespace hasten {
namespace {

thread_local SavedTensorPolicy* innermost_policy = nullptr;

std::function<void(const at::Tensor&)>& saved_tensor_listener() {
  static std::function<void(const at::Tensor&)> current;
  return current;
}
std::atomic<bool> has_saved_tensor_listener = false;

// Keeps the tensor as it is and only reports it.
class KeptTensorHooks : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { kept_ = KeptTensor(tensor); }
  at::Tensor call_unpack_hook() override { return kept_.get(); }

 private:
  KeptTensor kept_;
};

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorPolicy& policy)
    : outer_(std::exchange(innermost_policy, &policy)) {
  install_engine();
}

SavedTensorScope::~SavedTensorScope() { innermost_policy = outer_; }

KeptTensor::KeptTensor(const at::Tensor& tensor)
    : tensor_(tensor.detach()), version_(static_cast<std::uint32_t>(tensor._version())) {
  // Type promotion ignores a wrapped number. Keeps the mark, so that this holds in the backward
  // pass too.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    tensor_.unsafeGetTensorImpl()->set_wrapped_number(true);
  report_saved_tensor(tensor_);
}

const at::Tensor& KeptTensor::get() const {
  TORCH_CHECK(
      static_cast<std::uint32_t>(tensor_._version()) == version_,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: a tensor of ",
      tensor_.sizes(), " that is saved for the backward pass is at version ", tensor_._version(),
      ", expected version ", version_);
  return tensor_;
}

void set_saved_tensor_listener(std::function<void(const at::Tensor&)> listener) {
  install_engine();
  has_saved_tensor_listener = false;
  saved_tensor_listener() = std::move(listener);
  has_saved_tensor_listener = static_cast<bool>(saved_tensor_listener());
}

void report_saved_tensor(const at::Tensor& tensor) {
  if (has_saved_tensor_listener) saved_tensor_listener()(tensor);
}

void queue_callback_if_graph_is_kept(std::function<void()> f) {
  if (torch::autograd::get_current_graph_task_id() < 0 ||
      !torch::autograd::get_current_graph_task_keep_graph())
    return;
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(f));
}

std::unique_ptr<SavedVariableHooks> default_hooks() {
  if (innermost_policy != nullptr) {
    if (auto hooks = innermost_policy->hooks()) return hooks;
  }
  return has_saved_tensor_listener ? std::make_unique<KeptTensorHooks>() : nullptr;
}

}  // namespace hasten
