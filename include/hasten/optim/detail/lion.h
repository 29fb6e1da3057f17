// File: hasten/optim/detail/lion.h
// Lion: steps by the sign of a momentum (Chen et al. 2023), as lion-pytorch and bitsandbytes
// compute it.
//
//   hasten::Lion lion(model->parameters(), hasten::LionOptions(1e-4).weight_decay(0.1));
//   loss.backward();
//   lion.step();
//
// Every element moves by lr in each step, so lr should be three to ten times smaller than with
// AdamW, and weight_decay, which is decoupled, larger by the same factor. Defaults: lr 1e-4, betas
// 0.9 and 0.99, weight_decay 0. Keeps one float for each float of a parameter.
// For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API LionOptions : public CloneableParamGroupOptions<LionOptions> {
 public:
  static constexpr const char* kName = "Lion";
  explicit LionOptions(double lr = 1e-4) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.99};

 public:
  void check() const override;
  int floats_per_parameter() const override { return 1; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Lion : public TypedOptimizer<LionOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const LionOptions& options, const Entries& entries) override;
  void read(const LionOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
