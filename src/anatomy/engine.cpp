#include "anatomy/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <atomic>
#include <mutex>

#include "anatomy/dry_gpu.h"
#include "device/device.h"

namespace hasten::anatomy {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

std::function<void(const at::Tensor&)>& listener() {
  static std::function<void(const at::Tensor&)> current;
  return current;
}
std::atomic<bool> listening = false;

// Keeps the tensor as it is and only reports it.
class ReportingHooks : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override {
    if (listening) listener()(tensor);
    kept_ = tensor.detach();
    // A wrapped number takes no part in type promotion, which also holds in the backward pass.
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      kept_.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  at::Tensor call_unpack_hook() override { return kept_; }

 private:
  at::Tensor kept_;
};

class ObservingEngine : public Engine {
 public:
  ObservingEngine() = default;
  // Starts a thread for each device that there is now.
  void start_threads() { start_device_threads(); }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return listening ? std::make_unique<ReportingHooks>() : nullptr;
  }
};

// Makes an engine that is never deleted, because engines have to outlive autograd's threads.
ObservingEngine& make_engine_with_threads() {
  auto& one = *new ObservingEngine;
  one.start_threads();
  return one;
}

// A device that was added after LibTorch started its threads has an engine of its own, with a
// thread for it.
Engine& engine() {
  static ObservingEngine& plain = *new ObservingEngine;
  if (DryGpu::active() != nullptr) {
    static ObservingEngine& with_gpu = make_engine_with_threads();
    return with_gpu;
  }
  if (is_added_device_open()) {
    static ObservingEngine& with_device = make_engine_with_threads();
    return with_device;
  }
  return plain;
}

}  // namespace

void install_engine() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    torch::autograd::set_default_engine_stub(engine);
    // LibTorch starts its threads for devices once in a process, at the first backward pass. This
    // one makes it start them for the devices that there are now; the engine for a dry GPU starts
    // its own.
    at::ones({1}).requires_grad_().backward();
  });
}

void set_saved_tensor_listener(std::function<void(const at::Tensor&)> new_listener) {
  install_engine();
  listening = false;
  listener() = std::move(new_listener);
  listening = static_cast<bool>(listener());
}

}  // namespace hasten::anatomy
