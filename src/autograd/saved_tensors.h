// File: autograd/saved_tensors.h (internal)
// The only place that decides what happens to a tensor that LibTorch saves for the backward pass.
// Recomputation, the offloading of activations to host memory, and the anatomy all use it:
//
//   struct OnHost final : SavedTensorPolicy {
//     std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Copy>(); }
//   } policy;
//   const SavedTensorScope scope(policy);   // until the end of the block, in this thread
//
// Only the innermost policy of a thread decides. Hooks that keep a tensor on the device keep it as
// a KeptTensor, which is reported to the listener (the anatomy). The listener therefore knows every
// saved byte, no matter which policy keeps it. Hooks of a policy may be destroyed after the policy,
// and on another thread.
//
// Thread rule: a scope acts on its own thread. The process has one listener. Set it only while no
// other thread runs a model.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace hasten {

using torch::autograd::SavedVariableHooks;

class SavedTensorPolicy {
 public:
  // Returns hooks for one tensor. If it returns null, LibTorch keeps the tensor, and the tensor is
  // reported to the listener.
  virtual std::unique_ptr<SavedVariableHooks> hooks() = 0;

 protected:
  ~SavedTensorPolicy() = default;
};

class [[nodiscard]] SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorPolicy& policy);
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
  ~SavedTensorScope();

 private:
  SavedTensorPolicy* outer_;
};

// A saved tensor that stays where it is. Like LibTorch without hooks, it detects in-place changes.
class KeptTensor {
 public:
  KeptTensor() = default;
  // Reports the tensor to the listener.
  explicit KeptTensor(const at::Tensor& tensor);
  explicit operator bool() const { return tensor_.defined(); }
  // Throws c10::Error if the tensor has been changed in place since.
  const at::Tensor& get() const;

 private:
  at::Tensor tensor_;
  std::uint32_t version_ = 0;
};

// Sets the function that is called with each tensor that is kept for the backward pass. With an
// empty function nothing is reported.
void set_saved_tensor_listener(std::function<void(const at::Tensor&)> listener);
// Calls the listener, for a tensor that is kept for the backward pass in another way.
void report_saved_tensor(const at::Tensor& tensor);

// Calls f at the end of the running backward pass if that pass keeps its graph; otherwise does
// nothing. Use it to free memory that the pass has taken and that a later pass can take again.
void queue_callback_if_graph_is_kept(std::function<void()> f);

// Returns the hooks that the engine gives to LibTorch.
std::unique_ptr<SavedVariableHooks> default_hooks();

}  // namespace hasten
