// File: hasten/optim/detail/stable_adamw.h
// StableAdamW: AdamW that makes smaller steps for a tensor whose gradients are unexpectedly large
// (Wortsman et al. 2023), as torch-optimi computes it.
//
//   hasten::StableAdamW stable(model->parameters(), hasten::StableAdamWOptions(1e-3));
//   loss.backward();
//   stable.step();
//
// It replaces gradient clipping. Defaults: lr 1e-3, betas 0.9 and 0.99, eps 1e-6, weight_decay
// 0.01. If max_lr, the highest learning rate of the run, is set, weight decay is proportional to lr
// / max_lr. If it is 0 (the default), weight decay is proportional to lr. Keeps two floats for each
// float of a parameter. For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API StableAdamWOptions : public CloneableParamGroupOptions<StableAdamWOptions> {
 public:
  static constexpr const char* kName = "StableAdamW";
  explicit StableAdamWOptions(double lr = 1e-3)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/0.01) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.99};
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, max_lr) = 0;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API StableAdamW : public TypedOptimizer<StableAdamWOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
  bool steps_parameters_independently() const override { return false; }

 protected:
  void update(const StableAdamWOptions& options, const Entries& entries) override;
  void read(const StableAdamWOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
