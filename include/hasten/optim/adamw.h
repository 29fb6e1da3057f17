// File: hasten/optim/adamw.h
// AdamW in one pass over memory (Loshchilov and Hutter 2019), where LibTorch's own runs a dozen
// small operators a parameter. Arithmetic and options are torch.optim.AdamW(fused=True)'s.
//
//   hasten::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(5e-5).weight_decay(0.01));
//   loss.backward();
//   adamw.step();
//   adamw.zero_grad();
//
// On the CPU the pass is hasten's own, shared out among LibTorch's threads; elsewhere it is
// LibTorch's at::_fused_adamw_. Sparse gradients (coalesced or not, of float tables) are taken as
// what they stand for: the result is that of the dense gradient to the last bit, not the
// approximation that torch's SparseAdam makes. Rows that no gradient has ever reached have zero
// moments, so nothing of them but weight decay is to be done: they are skipped, and the moments'
// memory for them is never touched. Defaults: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay
// 1e-2 (LibTorch's AdamWOptions). amsgrad is refused. Throws UsageError "optim.amsgrad",
// "optim.dtype" (parameters that are not float). Thread rule: as LibTorch's optimizers, one thread
// at a time.
#pragma once

#include <torch/optim/adamw.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "hasten/optim/gradients.h"

namespace hasten {

namespace ops {
struct AdamWStep;
}

class AdamW : public torch::optim::Optimizer, public TakesGradientScale {
 public:
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 torch::optim::AdamWOptions defaults = {});
  explicit AdamW(std::vector<at::Tensor> parameters, torch::optim::AdamWOptions defaults = {});
  ~AdamW() override;

  at::Tensor step(LossClosure closure = nullptr) override;
  // The next step multiplies each gradient by this as it reads it: clipping without a pass of its
  // own.
  void scale_next_step(double factor) override { gradient_scale_ = factor; }
  void scale_next_step(const at::Tensor& factor) override { scale_on_device_ = factor; }

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  // Which rows of a table have ever had a gradient (ops/adamw.h), and whose moments that is about:
  // others came from a checkpoint.
  struct TouchedRows {
    const void* moments = nullptr;
    at::Tensor blocks;
  };
  void step_cpu(torch::optim::OptimizerParamGroup& group);
  void step_rows(const at::Tensor& parameter, const ops::AdamWStep& how);
  void step_elsewhere(torch::optim::OptimizerParamGroup& group);

  void scale(const std::vector<at::Tensor>& gradients) const;
  // What the kernels elsewhere divide by; none: nothing to divide.
  std::optional<at::Tensor> divisor_on(const at::Tensor& like) const;

  double gradient_scale_ = 1.0;
  at::Tensor scale_on_device_;  // in its place
  // By parameter: tables whose gradients have all been sparse.
  std::map<void*, TouchedRows> touched_;
};

}  // namespace hasten
