#include "autograd/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>

#include "autograd/saved_tensors.h"
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

// An engine, and the devices for which it has threads.
struct EngineOfDevices {
  std::size_t appearances = 0;
  HookingEngine* engine = nullptr;
};

// The engine of the last call.
std::atomic<const EngineOfDevices*> last_engine = nullptr;

std::mutex& engines_mutex() {
  static std::mutex& one = *new std::mutex;
  return one;
}

// The engines by device_appearances().
std::map<std::size_t, EngineOfDevices>& engines() {
  static auto& all = *new std::map<std::size_t, EngineOfDevices>;
  return all;
}

// Returns the engine for the devices that exist now. A device that appears after an engine was made
// gets a new engine, which has a thread for it.
Engine& engine() {
  const std::size_t appearances = device_appearances();
  if (const EngineOfDevices* const last = last_engine;
      last != nullptr && last->appearances == appearances)
    return *last->engine;
  const std::lock_guard lock(engines_mutex());
  EngineOfDevices& found = engines()[appearances];
  if (found.engine == nullptr)
    found = {.appearances = appearances, .engine = &make_engine_with_threads()};
  last_engine = &found;
  return *found.engine;
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

void reset_engines() {
  last_engine = nullptr;
  engines().clear();
}

void ensure_engine_thread(at::Device device) {
  if (device.is_cpu()) return;
  if (HookingEngine::lacks_thread(Engine::get_default_engine(), device)) install_engine();
}

}  // namespace hasten
