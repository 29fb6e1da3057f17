// File: hasten/optim/adamw.h
// AdamW in one pass over memory (Loshchilov and Hutter 2019); LibTorch's own runs a dozen small
// operators per parameter. Arithmetic and options match torch.optim.AdamW(fused=True).
//
//   hasten::AdamW adamw(model->parameters(), torch::optim::AdamWOptions(5e-5).weight_decay(0.01));
//   loss.backward();
//   adamw.step();
//   adamw.zero_grad();
//
// Weights and moments may be in bfloat16, which takes half of their memory:
//
//   model->to(torch::kBFloat16);                          // weights and gradients
//   hasten::AdamW lean(model->parameters(),
//                      hasten::AdamWOptions(5e-5).state_dtype(torch::kBFloat16));
//
// Such a step computes in float. It rounds the numbers that it stores in bfloat16 up or down at
// random, so that the mean of many roundings is the exact number (stochastic rounding, arXiv
// 2502.20566). Otherwise updates smaller than half of a bfloat16's last bit would vanish. The
// random numbers depend only on the option rounding_seed, the parameter's place in the optimizer,
// its step and the element's place. They do not depend on threads, ranks or the kind of CPU, and a
// resumed run continues them. bfloat16 is supported on the CPU only. Parameters in double have
// moments in double on the CPU and on a GPU, and LibTorch's at::_fused_adamw_ steps them.
//
// On the CPU, a step runs hasten's own kernel on LibTorch's threads. On other devices it runs
// LibTorch's at::_fused_adamw_, with the learning rate rounded to float, so that a step that a
// graph repeats (hasten/optim/detail/repeated_step.h) has the same bits. A sparse gradient
// (coalesced or not, in the table's type) gives the result of the equivalent dense gradient, to the
// last bit; PyTorch's SparseAdam is an approximation. Rows that no gradient has ever reached have
// zero moments and only need weight decay: the rest of their update is skipped, and the memory of
// their moments is never touched. Defaults: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight_decay
// 1e-2 (LibTorch's AdamWOptions). A parameter that is listed twice (a tied weight) is stepped once.
// Parameters may have any strides and be on several devices; parameters without gaps between their
// elements (contiguous, channels_last, transposed) are stepped in place, all others through a copy.
// Version counters rise as in LibTorch's optimizers, so a backward pass through weights that a step
// has changed throws.
//
// Between steps, LibTorch's operators (copy_, mul_) may change the moments, and other moments may
// be assigned in state(). Writes through data_ptr() or .data() are not detected: assign new tensors
// instead.
//
// amsgrad is not supported. Throws UsageError "optim.amsgrad", "optim.dtype" (a parameter is not in
// float, double or bfloat16, or it is in bfloat16 and not on the CPU, or in double on a TPU),
// "optim.gradient-shape" and "optim.state-shape" (a gradient or a moment does not have the
// parameter's shape), MemoryError "optim.out-of-memory". Thread rule: one thread at a time, as with
// LibTorch's optimizers.
#pragma once

#include <torch/optim/adamw.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/optim/detail/repeated_step.h"
#include "hasten/optim/gradients.h"

namespace hasten {

namespace ops {
struct AdamWStep;
}

// LibTorch's options, which hasten::AdamW also accepts, and options for bfloat16.
class HASTEN_API AdamWOptions : public torch::optim::AdamWOptions {
 public:
  AdamWOptions(double lr = 1e-3) : torch::optim::AdamWOptions(lr) {}
  AdamWOptions(const torch::optim::AdamWOptions& options) : torch::optim::AdamWOptions(options) {}

  double lr() const { return torch::optim::AdamWOptions::lr(); }
  AdamWOptions& lr(double value);
  std::tuple<double, double> betas() const { return torch::optim::AdamWOptions::betas(); }
  AdamWOptions& betas(std::tuple<double, double> values);
  double eps() const { return torch::optim::AdamWOptions::eps(); }
  AdamWOptions& eps(double value);
  double weight_decay() const { return torch::optim::AdamWOptions::weight_decay(); }
  AdamWOptions& weight_decay(double value);
  bool amsgrad() const { return torch::optim::AdamWOptions::amsgrad(); }
  AdamWOptions& amsgrad(bool value);

  // The type of both moments: float (the default) or bfloat16. Parameters in double have moments in
  // double. Moments that are loaded in a
  // different type are converted in the next step. Throws UsageError "optim.dtype".
  at::ScalarType state_dtype() const { return state_dtype_; }
  AdamWOptions& state_dtype(at::ScalarType type);
  // True (the default) rounds numbers stored in bfloat16 stochastically; false rounds them to the
  // nearest number.
  bool stochastic_rounding() const { return stochastic_rounding_; }
  AdamWOptions& stochastic_rounding(bool value);
  std::int64_t rounding_seed() const { return rounding_seed_; }
  AdamWOptions& rounding_seed(std::int64_t seed);

  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override;
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

 private:
  at::ScalarType state_dtype_ = at::kFloat;
  bool stochastic_rounding_ = true;
  std::int64_t rounding_seed_ = 0;
};

class HASTEN_API AdamW : public torch::optim::Optimizer,
                         public GradientScalingOptimizer,
                         public CapturableOptimizer {
 public:
  // A group with LibTorch's options takes the bfloat16 options from `defaults`.
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 AdamWOptions defaults = {});
  explicit AdamW(std::vector<at::Tensor> parameters, AdamWOptions defaults = {});
  ~AdamW() override;

  at::Tensor step(LossClosure closure = nullptr) override;

  // Returns a step that repeats the steps of the parameters that have moments. Throws UsageError
  // "optim.repeated-step" for parameters on the CPU, where the kernel takes the numbers of a step
  // as arguments.
  std::unique_ptr<RepeatedStep> repeated_step() override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct Entry;        // a parameter in one step
  struct TouchedRows;  // the rows of a table that have ever had a gradient
  class RepeatedAdamWStep;

  // Checks a group, and gives it hasten's options if it has LibTorch's.
  void check_group(torch::optim::OptimizerParamGroup& group);
  // `index` is the parameter's index, counted over all groups.
  Entry entry_of(const at::Tensor& parameter, std::int64_t index, const AdamWOptions& options);
  void step_cpu(const std::vector<Entry>& entries, const AdamWOptions& options);
  void step_rows(const Entry& entry, const ops::AdamWStep& how);
  void step_on_device(const std::vector<Entry>& entries, const AdamWOptions& options);
  // Runs LibTorch's kernel. `Rate` is a number, or a tensor of one element; counts[i] is the step
  // count of entries[i].
  template <class Rate>
  void run_fused(const std::vector<Entry>& entries, const std::vector<at::Tensor>& counts,
                 const Rate& rate, const AdamWOptions& options);

  // Multiplies the gradients by the factor of this step.
  void scale(const std::vector<at::Tensor>& gradients) const;
  // The number by which at::_fused_adamw_ divides the gradients; unset if it does not divide them.
  std::optional<at::Tensor> divisor_on(const at::Tensor& like) const;

  // The tables that have had only sparse gradients, by parameter.
  std::map<const void*, std::unique_ptr<TouchedRows>> touched_;
  // The step that a graph has replayed and the next step() counts, or null.
  RepeatedAdamWStep* replayed_ = nullptr;
};

}  // namespace hasten
