// File: hasten/optim/detail/radam.h
// RAdam: Adam that begins with plain momentum steps, while the second moment is uncertain (Liu et
// al. 2020). Arithmetic and options match torch.optim.RAdam.
//
//   hasten::RAdam radam(model->parameters(), hasten::RAdamOptions(1e-3));
//   loss.backward();
//   radam.step();
//
// Defaults: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay false
// (the decay is added to the gradient). Keeps two floats for each float of a parameter.
// For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API RAdamOptions : public CloneableParamGroupOptions<RAdamOptions> {
 public:
  static constexpr const char* kName = "RAdam";
  explicit RAdamOptions(double lr = 1e-3) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, decoupled_weight_decay) = false;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API RAdam : public TypedOptimizer<RAdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const RAdamOptions& options, const Entries& entries) override;
  void read(const RAdamOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
