#include "autograd/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <mutex>

#include "autograd/saved_tensors.h"
#include "device/cuda/simulated_gpu.h"
#include "device/device.h"

namespace hasten {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

class HookingEngine : public Engine {
 public:
  HookingEngine() = default;
  // Starts a thread for each device that there is now.
  void start_threads() { start_device_threads(); }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return default_hooks();
  }
};

// Makes an engine that is never deleted, because engines have to outlive autograd's threads.
HookingEngine& make_engine_with_threads() {
  auto& one = *new HookingEngine;
  one.start_threads();
  return one;
}

// A device that was added after LibTorch started its threads has an engine of its own, with a
// thread for it.
Engine& engine() {
  static HookingEngine& plain = *new HookingEngine;
  if (is_gpu_simulated()) {
    static HookingEngine& with_gpu = make_engine_with_threads();
    return with_gpu;
  }
  if (is_added_device_open()) {
    static HookingEngine& with_device = make_engine_with_threads();
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
    // one makes it start them for the devices that there are now; the engine for a simulated GPU
    // starts its own.
    const at::AutoGradMode with_gradients(true);
    at::ones({1}).requires_grad_().backward();
  });
}

}  // namespace hasten
