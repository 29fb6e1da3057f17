// File: hasten/optim/detail/adafactor.h
// Adafactor: keeps mean squares for the rows and columns of a matrix instead of for its elements
// (Shazeer and Stern 2018). Arithmetic and options match transformers' Adafactor.
//
//   hasten::Adafactor by_itself(model->parameters());  // chooses its learning rate
//   hasten::Adafactor adafactor(
//       model->parameters(),
//       hasten::AdafactorOptions(1e-3).relative_step(false).scale_parameter(false));
//   loss.backward();
//   adafactor.step();
//
// Defaults: lr 0 (relative_step chooses it), eps 1e-30 and 1e-3 (added to squares, and the smallest
// scale of a parameter), clip_threshold 1, decay_rate -0.8, beta1 unset (no momentum), weight_decay
// 0 (decoupled), scale_parameter true (steps are proportional to the root mean square of the
// parameter), relative_step true (lr is 1 / sqrt(step), at most 0.01), warmup_init false (at most
// 1e-6 * step). With relative_step, lr must be 0, because a schedule would have no effect. Keeps
// almost no state for a matrix, or with beta1 one float for each of its floats. Also throws
// ConfigError "optim.relative-step". For errors and the thread rule, see stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

class HASTEN_API AdafactorOptions : public CloneableParamGroupOptions<AdafactorOptions> {
 public:
  static constexpr const char* kName = "Adafactor";
  explicit AdafactorOptions(double lr = 0) : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Pair = std::tuple<double, double>;
  TORCH_ARG(Pair, eps) = {1e-30, 1e-3};
  TORCH_ARG(double, clip_threshold) = 1;
  TORCH_ARG(double, decay_rate) = -0.8;
  TORCH_ARG(std::optional<double>, beta1);
  TORCH_ARG(bool, scale_parameter) = true;
  TORCH_ARG(bool, relative_step) = true;
  TORCH_ARG(bool, warmup_init) = false;

 public:
  void check() const override;
  int floats_per_parameter() const override { return beta1_ ? 1 : 0; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API Adafactor : public TypedOptimizer<AdafactorOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;
  std::vector<std::int64_t> state_shape(const std::string& tensor,
                                        const at::Tensor& parameter) const override;

 protected:
  void update(const AdafactorOptions& options, const Entries& entries) override;
  void read(const AdafactorOptions& options, const Entries& entries) const override;

 private:
  static at::Tensor learning_rate(const AdafactorOptions& options, const at::Tensor& parameter,
                                  std::int64_t step);
};

}  // namespace hasten
