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
// 1e-2 (LibTorch's AdamWOptions). A parameter that appears twice (a tied weight) is stepped once.
// Parameters may have any strides and lie on several devices; those without gaps between their
// elements (contiguous, channels_last, transposed) are stepped in place, others through a copy.
// Version counters rise as in LibTorch's optimizers, so a backward pass through weights that a step
// has changed throws.
//
// Moments may be changed between steps by operators of LibTorch (copy_, mul_), and state() may be
// given others. Writes through data_ptr() or .data() cannot be noticed: assign new tensors instead.
//
// amsgrad is refused. Throws UsageError "optim.amsgrad", "optim.dtype" (parameters that are not
// float), "optim.gradient-shape" and "optim.state-shape" (a gradient or a moment that is not of the
// parameter's shape). Thread rule: as LibTorch's optimizers, one thread at a time.
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
  struct Entry;        // a parameter in one step
  struct TouchedRows;  // which rows of a table have ever had a gradient

  Entry entry_of(const at::Tensor& parameter);
  void step_cpu(const std::vector<Entry>& entries, const torch::optim::AdamWOptions& options);
  void step_rows(const Entry& entry, const ops::AdamWStep& how);
  void step_elsewhere(const std::vector<Entry>& entries, const torch::optim::AdamWOptions& options);

  // The factor of the gradients, as a number on the CPU.
  double scale_on_cpu() const;
  void scale(const std::vector<at::Tensor>& gradients) const;
  // What the kernels elsewhere divide by; none: nothing to divide.
  std::optional<at::Tensor> divisor_on(const at::Tensor& like) const;

  double gradient_scale_ = 1.0;
  at::Tensor scale_on_device_;  // in its place
  // By parameter: tables whose gradients have all been sparse.
  std::map<const void*, std::unique_ptr<TouchedRows>> touched_;
};

}  // namespace hasten
