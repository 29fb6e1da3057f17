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
// A checkpoint has the weights and the optimizer of rank 0. So save_state() throws in the scope if
// steps were made since the last average, because the weights of the other ranks would be lost. The
// moments of the other ranks are lost in any case: all ranks continue with those of rank 0.
//
// Throws UsageError "prepare.local-sgd-steps" and, from save_state(), "prepare.local-sgd-save";
// c10::Error if another rank has ended or is too late.
// Thread rule: the same as for the Accelerator. Source: Accelerate's LocalSGD.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/prepare/detail/prepared.h"
#include "hasten/prepare/detail/save_state.h"

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
  // Returns the steps that the prepared optimizers of the model's parameters have made.
  std::int64_t optimizer_steps() const;
  void check_save() const;

  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<const torch::nn::Module> model_;
  LocalSGDOptions options_;
  Synchronization before_{};
  int uncaught_exceptions_;
  std::int64_t steps_ = 0, averages_ = 0;
  std::int64_t averaged_optimizer_steps_ = 0;       // optimizer_steps() at the last average
  std::shared_ptr<CheckpointFunction> save_check_;  // save_state() calls it
};

}  // namespace hasten
