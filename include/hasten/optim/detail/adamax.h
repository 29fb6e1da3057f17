// File: hasten/optim/detail/adamax.h
// Adamax: Adam with the decayed maximum of past gradients instead of the mean of squares (Kingma
// and Ba 2015, section 7.1). Arithmetic and options match torch.optim.Adamax.
//
//   hasten::Adamax adamax(model->parameters(), hasten::AdamaxOptions(2e-3));
//   loss.backward();
//   adamax.step();
//
// Defaults: lr 2e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay 0 (added to the gradient). Keeps
// two floats for each float of a parameter. For errors and the thread rule, see
// stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API AdamaxOptions : public CloneableParamGroupOptions<AdamaxOptions> {
 public:
  static constexpr const char* kName = "Adamax";
  explicit AdamaxOptions(double lr = 2e-3) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;

 public:
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Adamax : public TypedOptimizer<AdamaxOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const AdamaxOptions& options, const Entries& entries) override;
  void read(const AdamaxOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
