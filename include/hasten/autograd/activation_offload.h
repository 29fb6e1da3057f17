// File: hasten/autograd/activation_offload.h
// Keeps activations in host memory: while a scope lives, the tensors that the forward pass saves
// for the backward pass are copied to host memory, and are copied back shortly before the backward
// pass needs them. This costs no computation, only the time of copies that do not overlap with
// computation.
//
//   const ActivationOffload offload(*net);   // until the end of the block
//   const at::Tensor loss = loss_of(net->forward(torch::ones({8, 4})));
//
// Host memory is pinned, copies run on their own stream, and copies to the device begin a few
// tensors ahead. Parameters and buffers of the module stay where they are, and so do tensors below
// min_bytes and tensors with gaps or overlaps. With checkpoint() inside the scope, the inputs of
// its regions are moved to host memory, but the tensors that a region recomputes are not.
//
// Throws UsageError "autograd.offload" on the CPU, where activations are in host memory already,
// and on a TPU. Thread rule: a scope acts on its own thread; the backward pass may run on any.
// Source: torch.autograd.graph.save_on_cpu; activation_offloading of TRL.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "hasten/base/detail/export.h"

namespace hasten {

class [[nodiscard]] HASTEN_API ActivationOffload {
 public:
  // In bytes. Offloading a smaller tensor costs more time than the memory is worth.
  static constexpr std::int64_t kMinBytes = 1 << 20;

  // Offloads the tensors of the device that the module's parameters are on.
  explicit ActivationOffload(const torch::nn::Module& module, std::int64_t min_bytes = kMinBytes);
  ActivationOffload(const ActivationOffload&) = delete;
  ActivationOffload& operator=(const ActivationOffload&) = delete;
  ~ActivationOffload();

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

}  // namespace hasten
