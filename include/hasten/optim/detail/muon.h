// File: hasten/optim/detail/muon.h
// Muon: steps by a momentum matrix that is made nearly orthogonal (Jordan et al. 2024). Arithmetic
// and options match torch.optim.Muon.
//
//   std::vector<at::Tensor> matrices;
//   for (const at::Tensor& each : model->parameters()) {
//     if (each.dim() == 2) matrices.push_back(each);
//   }
//   hasten::Muon muon(matrices, hasten::MuonOptions(0.02));
//   loss.backward();
//   muon.step();
//
// Only for the matrices of hidden layers; use AdamW for embeddings, the last layer, biases and
// norms. Defaults: lr 1e-3, weight_decay 0.1 (decoupled), momentum 0.95, nesterov true, ns_steps 5
// (Newton-Schulz iterations, in bfloat16), ns_coefficients 3.4445, -4.775 and 2.0315, eps 1e-7,
// adjust_lr_fn "original" (a tall matrix makes larger steps) or "match_rms_adamw" (steps of the
// same size as AdamW's, so that a learning rate for AdamW works). Keeps one float for each float of
// a parameter. Also throws UsageError "optim.not-a-matrix". For other errors and the thread rule,
// see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API MuonOptions : public CloneableParamGroupOptions<MuonOptions> {
 public:
  static constexpr const char* kName = "Muon";
  explicit MuonOptions(double lr = 1e-3) : CloneableParamGroupOptions(lr, /*weight_decay=*/0.1) {}
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(std::vector<double>, ns_coefficients) = {3.4445, -4.775, 2.0315};
  TORCH_ARG(double, eps) = 1e-7;
  TORCH_ARG(std::int64_t, ns_steps) = 5;
  TORCH_ARG(std::string, adjust_lr_fn) = "original";

 public:
  void check() const override;
  int floats_per_parameter() const override { return 1; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Muon : public TypedOptimizer<MuonOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const MuonOptions& options, const Entries& entries) override;
  void read(const MuonOptions& options, const Entries& entries) const override;
  void check_parameter(const at::Tensor& parameter) const override;
};

}  // namespace hasten
