// File: hasten/prepare/detail/scopes.h
// The scopes of an Accelerator. Each begins something when it is constructed, and ends it when it
// is destroyed.
//
//   auto guard = accelerator.accumulate(model);                 // an AccumulateScope
//   auto local = accelerator.no_sync(model);                    // a SynchronizationScope
//   const ProfileScope profile = accelerator.profile("trace.json");
//
// hasten/accelerator.h describes the calls that return them, and what they throw. Thread rule: the
// thread of the Accelerator.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

class AcceleratorState;
enum class Synchronization;

// The scope of one micro-batch; see Accelerator::accumulate. `ends_window` says whether it is the
// last one of its window; if it is unset, that follows from the loader.
class [[nodiscard]] HASTEN_API AccumulateScope {
 public:
  AccumulateScope(std::shared_ptr<AcceleratorState> state,
                  const std::vector<std::shared_ptr<torch::nn::Module>>& models,
                  std::optional<bool> ends_window = {});
  AccumulateScope(const AccumulateScope&) = delete;
  AccumulateScope& operator=(const AccumulateScope&) = delete;
  ~AccumulateScope();

 private:
  std::shared_ptr<AcceleratorState> state_;
};

// The scope of Accelerator::no_sync and Accelerator::trigger_sync_in_backward.
class [[nodiscard]] HASTEN_API SynchronizationScope {
 public:
  SynchronizationScope(std::shared_ptr<AcceleratorState> state, const torch::nn::Module* model,
                       Synchronization how);
  SynchronizationScope(const SynchronizationScope&) = delete;
  SynchronizationScope& operator=(const SynchronizationScope&) = delete;
  ~SynchronizationScope();

 private:
  std::shared_ptr<AcceleratorState> state_;
  const torch::nn::Module* model_;
  Synchronization before_;
};

// Records LibTorch's operators on the CPU from its construction to its destruction, and then writes
// a Chrome trace (for chrome://tracing or Perfetto).
class [[nodiscard]] HASTEN_API ProfileScope {
 public:
  explicit ProfileScope(std::filesystem::path trace);
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope();

 private:
  std::filesystem::path trace_;
};

}  // namespace hasten
