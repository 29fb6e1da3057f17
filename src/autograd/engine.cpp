#include "autograd/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "autograd/saved_tensors.h"
#include "device/cuda/cuda_library.h"
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
  // Returns whether the engine has started and has no thread for the device.
  static bool lacks_thread(const Engine& engine, at::Device device) {
    return engine.*(&HookingEngine::thread_pool_shared_) != nullptr &&
           static_cast<std::size_t>(std::max<int>(device.index(), 0)) >=
               (engine.*(&HookingEngine::device_ready_queues_)).size();
  }
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

std::atomic<HookingEngine*> with_simulated_gpu = nullptr;

Engine& engine_with_simulated_gpu() {
  static std::mutex mutex;
  if (HookingEngine* const made = with_simulated_gpu) return *made;
  const std::lock_guard lock(mutex);
  if (with_simulated_gpu == nullptr) with_simulated_gpu = &make_engine_with_threads();
  return *with_simulated_gpu;
}

// Returns the engine for the devices that exist now. A device that appears after an engine was made
// gets a new engine, which has a thread for it.
Engine& engine() {
  if (is_gpu_simulated()) return engine_with_simulated_gpu();
  if (is_added_device_open()) {
    static HookingEngine& with_device = make_engine_with_threads();
    return with_device;
  }
  if (is_cuda_library_loaded()) {
    static HookingEngine& with_gpus = make_engine_with_threads();
    return with_gpus;
  }
  static HookingEngine& plain = make_engine_with_threads();
  return plain;
}

}  // namespace

void install_engine() {
  static std::once_flag installed;
  std::call_once(installed, [] {
    // LibTorch starts the threads of one engine, at the first backward pass in the process. This
    // pass makes sure that it has done so, because each engine here has started its own.
    const at::AutoGradMode with_gradients(true);
    at::ones({1}).requires_grad_().backward();
    torch::autograd::set_default_engine_stub(engine);
  });
}

void reset_simulated_gpu_engine() { with_simulated_gpu = nullptr; }

void ensure_engine_thread(at::Device device) {
  if (device.is_cpu()) return;
  if (HookingEngine::lacks_thread(Engine::get_default_engine(), device)) install_engine();
}

}  // namespace hasten
