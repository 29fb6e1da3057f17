// File: hasten/optim/detail/muon_adamw.h
// Muon for the matrices of hidden layers and AdamW for all other parameters, in one optimizer, as
// Muon's authors train whole models. The option use_muon of a group of parameters decides whether
// Muon or AdamW steps it.
//
//   hasten::MuonAdamWOptions of_matrices(1e-3), of_others(1e-3);
//   of_others.use_muon(false);
//   std::vector<torch::optim::OptimizerParamGroup> groups;
//   groups.emplace_back(matrices, of_matrices.clone());
//   groups.emplace_back(others, of_others.clone());
//   hasten::MuonAdamW optimizer(groups);
//
// The arithmetic matches hasten::Muon (hasten/optim/detail/muon.h) and torch.optim.AdamW. Defaults:
// lr 1e-3, weight_decay 0.1 (decoupled), use_muon true; for Muon momentum 0.95, nesterov true,
// ns_steps 5, adjust_lr_fn "match_rms_adamw", with which one learning rate works for both; for
// AdamW betas 0.9 and 0.999, eps 1e-8. Keeps one float for each float of Muon's matrices and two
// for each float of other parameters. Also throws UsageError "optim.not-a-matrix" if a group with
// use_muon has a parameter that is not a matrix. For other errors and the thread rule, see
// stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/detail/muon.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API MuonAdamWOptions : public CloneableParamGroupOptions<MuonAdamWOptions> {
 public:
  static constexpr const char* kName = "MuonAdamW";
  explicit MuonAdamWOptions(double lr = 1e-3)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/0.1) {}
  TORCH_ARG(bool, use_muon) = true;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(std::int64_t, ns_steps) = 5;
  TORCH_ARG(std::string, adjust_lr_fn) = "match_rms_adamw";
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;

 public:
  void check() const override;
  int floats_per_parameter() const override { return use_muon_ ? 1 : 2; }
  // The options of Muon's step.
  MuonOptions muon() const;

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API MuonAdamW : public TypedOptimizer<MuonAdamWOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
  bool steps_parameters_independently() const override { return false; }

 protected:
  void check_step() const override;
  void update(const MuonAdamWOptions& options, const Entries& entries) override;
  void read(const MuonAdamWOptions& options, const Entries& entries) const override;
};

}  // namespace hasten
