// File: hasten/prepare/detail/local_sgd.h
// Local SGD (Stich 2019, arXiv:1805.09767): each process trains on its own for some steps, and then
// the weights of all processes are averaged. The processes exchange weights every few steps instead
// of gradients in each step.
//
//   {
//     LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 8});
//     for (auto& batch : loader) {
//       accelerator.backward(loss_of(model(batch)));  // exchanges nothing
//       optimizer.step();
//       optimizer.zero_grad();
//       local_sgd.step();  // averages the weights after each 8th step
//     }
//   }  // averages once more if steps were made since the last average
//
// A step is an optimizer step: while an accumulation window of the model waits for more
// micro-batches, step() does nothing. Every process makes the same number of steps. Gradients are
// divided by the weight of the process's own window. Parameters that require gradients are
// averaged; the moments of the optimizer stay different in each process, and buffers are replaced
// with rank 0's in the next forward pass after the scope. With one process, or with enabled =
// false, nothing is done. A scope that is left by an exception does not average at its end.
//
// Throws UsageError "prepare.local-sgd-steps"; c10::Error if another rank has ended or is too late.
// Thread rule: the same as for the Accelerator. Source: Accelerate's LocalSGD.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/prepare/detail/prepared.h"

namespace hasten {

class AcceleratorState;
enum class Synchronization;

struct LocalSGDOptions {
  std::int64_t local_sgd_steps = 8;  // optimizer steps from one average to the next
  bool enabled = true;
};

class [[nodiscard]] HASTEN_API LocalSGD {
 public:
  // `accelerator` must be the one that prepared the model.
  template <class Accelerator, class Impl>
  LocalSGD(const Accelerator& accelerator, const PreparedModel<Impl>& model,
           LocalSGDOptions options = {})
      : LocalSGD(accelerator.state_, model.unwrap(), options) {}
  LocalSGD(std::shared_ptr<AcceleratorState> state, std::shared_ptr<const torch::nn::Module> model,
           LocalSGDOptions options);
  LocalSGD(const LocalSGD&) = delete;
  LocalSGD& operator=(const LocalSGD&) = delete;
  // Averages the weights if steps were made since the last average. May throw.
  ~LocalSGD() noexcept(false);

  // Counts an optimizer step, and averages the weights if an average is due.
  void step();

  // The number of averages so far.
  std::int64_t averages() const { return averages_; }

 private:
  void average();

  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<const torch::nn::Module> model_;
  LocalSGDOptions options_;
  Synchronization before_{};
  int uncaught_exceptions_;
  std::int64_t steps_ = 0, averages_ = 0;
};

}  // namespace hasten
