// File: hasten/prepare/local_sgd.h
// Local SGD (Stich 2019, arXiv:1805.09767): each process trains on its own for some steps, and then
// the weights of all become their mean. What travels is the weights every few steps instead of the
// gradients in each.
//
//   {
//     LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 8});
//     for (auto& batch : loader) {
//       accelerator.backward(loss_of(model(batch)));      // exchanges nothing
//       optimizer.step();
//       optimizer.zero_grad();
//       local_sgd.step();                                 // after each 8th step: the mean
//     }
//   }                                                     // and here
//
// A step is one of the optimizer: inside of an open accumulation window step() does nothing. Every
// process makes as many. Gradients are divided by what the process itself has in a window. What is
// averaged are the parameters that have gradients; an optimizer's moments stay each process's own,
// and buffers become rank 0's with the next forward pass outside. In one process, or with enabled =
// false, nothing is done. A scope that an exception ends averages nothing.
//
// Throws UsageError "prepare.local-sgd-steps"; c10::Error where another rank is gone or too late.
// Thread rule: as the Accelerator's. Source: accelerate's LocalSGD.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "hasten/prepare/prepared.h"

namespace hasten {

struct LocalSGDOptions {
  std::int64_t local_sgd_steps = 8;  // from one mean to the next
  bool enabled = true;
};

class [[nodiscard]] LocalSGD {
 public:
  // `accelerator` is the one that prepared the model.
  template <class Accelerator, class Impl>
  LocalSGD(const Accelerator& accelerator, const PreparedModel<Impl>& model,
           LocalSGDOptions options = {})
      : LocalSGD(accelerator.step_, model.unwrap(), options) {}
  LocalSGD(std::shared_ptr<Step> step, std::shared_ptr<const torch::nn::Module> model,
           LocalSGDOptions options);
  LocalSGD(const LocalSGD&) = delete;
  LocalSGD& operator=(const LocalSGD&) = delete;
  // The last mean, where steps were made since one. May throw.
  ~LocalSGD() noexcept(false);

  void step();

  // How often weights were averaged.
  std::int64_t averages() const { return averages_; }

 private:
  void average();

  std::shared_ptr<Step> step_;
  std::shared_ptr<const torch::nn::Module> model_;
  LocalSGDOptions options_;
  Synchronization before_ = Synchronization::at_window_end;
  int exceptions_;
  std::int64_t steps_ = 0, averages_ = 0;
};

}  // namespace hasten
