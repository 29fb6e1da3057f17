// File: hasten/optim/detail/lamb.h
// LAMB: AdamW with steps that are proportional to the norm of each tensor, for large batches (You
// et al. 2020), as timm computes it.
//
//   hasten::Lamb lamb(model->parameters(), hasten::LambOptions(1e-3).weight_decay(0.01));
//   loss.backward();
//   lamb.step();
//
// timm clips the norm of all gradients to 1 itself; here clip_grad_norm_() does so before step().
// Defaults: lr 1e-3, betas 0.9 and 0.999, eps 1e-6, weight_decay 0.01, bias_correction true,
// trust_clip false (true limits the ratio of the norms to 1), always_adapt false (a group without
// weight decay makes plain Adam steps). Keeps two floats for each float of a parameter.
// For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API LambOptions : public CloneableParamGroupOptions<LambOptions> {
 public:
  static constexpr const char* kName = "Lamb";
  explicit LambOptions(double lr = 1e-3) : CloneableParamGroupOptions(lr, /*weight_decay=*/0.01) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(bool, bias_correction) = true;
  TORCH_ARG(bool, trust_clip) = false;
  TORCH_ARG(bool, always_adapt) = false;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Lamb : public TypedOptimizer<LambOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
  bool steps_parameters_independently() const override { return false; }

 protected:
  void update(const LambOptions& options, const Entries& entries) override;
  void read(const LambOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
