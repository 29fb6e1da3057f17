// File: hasten/optim/detail/ademamix.h
// AdEMAMix: AdamW with a second, slow mean of the gradients (Pagliardini et al. 2024), as
// bitsandbytes computes it.
//
//   hasten::AdEMAMix ademamix(model->parameters(),
//                             hasten::AdEMAMixOptions(1e-3).alpha(8).t_alpha(10000).t_beta3(10000));
//   loss.backward();
//   ademamix.step();
//
// Defaults: lr 1e-3, betas 0.9 and 0.999, beta3 0.9999 (the slow mean), alpha 5 (its weight), eps
// 1e-8, weight_decay 0.01 (decoupled). alpha and beta3 rise to their values over t_alpha and
// t_beta3 steps; with 0 they have them from the first step on. Keeps three floats for each float of
// a parameter. Errors and the thread rule: see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API AdEMAMixOptions : public CloneableParamGroupOptions<AdEMAMixOptions> {
 public:
  static constexpr const char* kName = "AdEMAMix";
  explicit AdEMAMixOptions(double lr = 1e-3)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/0.01) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, beta3) = 0.9999;
  TORCH_ARG(double, alpha) = 5;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(std::int64_t, t_alpha) = 0;
  TORCH_ARG(std::int64_t, t_beta3) = 0;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 3; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API AdEMAMix : public TypedOptimizer<AdEMAMixOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const AdEMAMixOptions& options, const Entries& entries) override;
  void read(const AdEMAMixOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
