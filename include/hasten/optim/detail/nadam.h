// File: hasten/optim/detail/nadam.h
// NAdam: Adam with Nesterov's momentum (Dozat 2016). Arithmetic and options match
// torch.optim.NAdam.
//
//   hasten::NAdam nadam(model->parameters(), hasten::NAdamOptions(2e-3));
//   loss.backward();
//   nadam.step();
//
// Defaults: lr 2e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3,
// decoupled_weight_decay false (the decay is added to the gradient). Keeps two floats for each
// float of a parameter. For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API NAdamOptions : public CloneableParamGroupOptions<NAdamOptions> {
 public:
  static constexpr const char* kName = "NAdam";
  explicit NAdamOptions(double lr = 2e-3) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, momentum_decay) = 4e-3;
  TORCH_ARG(bool, decoupled_weight_decay) = false;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API NAdam : public TypedOptimizer<NAdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const NAdamOptions& options, const Entries& entries) override;
  void read(const NAdamOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
