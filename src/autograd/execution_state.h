// File: autograd/execution_state.h (internal)
// The state of the program that a function depends on in addition to its arguments: the random
// number generators and autocast. Recomputation restores the state of the first run.
//
//   const ExecutionState then = ExecutionState::capture({at::kCPU}, /*with_generators=*/true);
//   ...
//   { const ExecutionStateScope scope(then); fn(); }   // restores the present state at its end
//
// Thread rule: a scope acts on its own thread; generators are shared by all threads.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <utility>
#include <vector>

#include "autograd/saved_tensors.h"

namespace hasten {

// The states of the default generators of the CPU and of devices.
class GeneratorStates {
 public:
  static GeneratorStates capture(const std::vector<at::Device>& devices);
  void restore() const;
  // Reports the memory of the states to the listener, because a region keeps them for the backward
  // pass.
  void report_memory() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// The state of autocast on every device that has it.
class AutocastStates {
 public:
  static AutocastStates capture();
  void restore() const;

 private:
  struct Setting {
    at::DeviceType device;
    bool enabled;
    at::ScalarType type;
  };
  std::vector<Setting> settings_;
  bool cache_enabled_ = true;
};

struct ExecutionState {
  GeneratorStates generators;
  AutocastStates autocast;
  std::vector<at::Device> devices;
  bool with_generators = true;

  static ExecutionState capture(std::vector<at::Device> devices, bool with_generators);
};

// Sets the state, and restores the present state at its end.
class [[nodiscard]] ExecutionStateScope {
 public:
  explicit ExecutionStateScope(const ExecutionState& state);
  ExecutionStateScope(const ExecutionStateScope&) = delete;
  ExecutionStateScope& operator=(const ExecutionStateScope&) = delete;
  ~ExecutionStateScope();

 private:
  ExecutionState before_;
};

}  // namespace hasten
