// File: hasten/optim/detail/schedule_free.h
// Schedule-free AdamW and SGD: a mean of the weights replaces the decay of the learning rate
// (Defazio et al. 2024). Arithmetic and options match the Python package schedulefree.
//
//   hasten::ScheduleFreeAdamW adamw(
//       model->parameters(),
//       hasten::ScheduleFreeAdamWOptions(2.5e-3).averaging({.warmup_steps = 100}));
//   adamw.train();  // before training: the weights at which gradients are computed
//   loss.backward();
//   adamw.step();
//   adamw.eval();  // before evaluating or saving: the mean of the weights
//
// An optimizer begins in the mode of eval(); step() requires the mode of train(). A checkpoint of
// an Accelerator has the mode, and load_state() sets it, so call train() after load_state(). Use a
// constant learning rate. Defaults: lr 2.5e-3 (AdamW) and 1 (SGD), betas 0.9 and 0.999, eps 1e-8,
// momentum 0.9, weight_decay 0 (decoupled from the second moment, at the weights of train()). AdamW
// keeps two floats for each float of a parameter, SGD one. Also throws UsageError "optim.eval-mode"
// if step() is called in the mode of eval(). For other errors and the thread rule, see
// stateful_optimizer.h.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

// An optimizer that uses different weights for training and for evaluation.
class HASTEN_API WeightAveragingOptimizer {
 public:
  virtual ~WeightAveragingOptimizer() = default;
  // train() sets the parameters to the weights to train, eval() to the mean to evaluate. Each does
  // nothing if the optimizer is already in that mode.
  virtual void train() = 0;
  virtual void eval() = 0;
  // True in the mode of train().
  virtual bool is_training() const = 0;
  // Sets the mode without moving the parameters. Call it after parameters and states of this mode
  // have been loaded.
  virtual void set_training(bool is_training) = 0;
};

// How the mean weights the steps of a run.
struct Averaging {
  std::int64_t warmup_steps = 0;  // The learning rate rises over these steps.
  double r = 0;                   // Step k has the weight k^r ...
  double weight_lr_power = 2;     // ... times the highest learning rate to this power.
};

class HASTEN_API ScheduleFreeAdamWOptions
    : public CloneableParamGroupOptions<ScheduleFreeAdamWOptions> {
 public:
  static constexpr const char* kName = "ScheduleFreeAdamW";
  explicit ScheduleFreeAdamWOptions(double lr = 2.5e-3)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  using Betas = std::tuple<double, double>;
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(Averaging, averaging);

 public:
  // The share of the mean in the weights to train.
  double interpolation() const { return std::get<0>(betas_); }
  void check() const override;
  int floats_per_parameter() const override { return 2; }

 protected:
  void visit(OptionVisitor& option) override;
};

class HASTEN_API ScheduleFreeSGDOptions
    : public CloneableParamGroupOptions<ScheduleFreeSGDOptions> {
 public:
  static constexpr const char* kName = "ScheduleFreeSGD";
  explicit ScheduleFreeSGDOptions(double lr = 1)
      : CloneableParamGroupOptions(lr, /*weight_decay=*/0) {}
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(Averaging, averaging);

 public:
  // The share of the mean in the weights to train.
  double interpolation() const { return momentum_; }
  void check() const override;
  int floats_per_parameter() const override { return 1; }

 protected:
  void visit(OptionVisitor& option) override;
};

template <class Options>
class HASTEN_API ScheduleFree : public TypedOptimizer<Options>, public WeightAveragingOptimizer {
 public:
  using TypedOptimizer<Options>::TypedOptimizer;
  bool steps_parameters_independently() const override { return false; }
  void train() override;
  void eval() override;
  bool is_training() const override { return is_training_; }
  void set_training(bool is_training) override { is_training_ = is_training; }
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  void check_step() const override;
  void update(const Options& options, const StatefulOptimizer::Entries& entries) override;
  void read(const Options& options, const StatefulOptimizer::Entries& entries) const override;

 private:
  bool is_training_ = false;
};

using ScheduleFreeAdamW = ScheduleFree<ScheduleFreeAdamWOptions>;
using ScheduleFreeSGD = ScheduleFree<ScheduleFreeSGDOptions>;

extern template class ScheduleFree<ScheduleFreeAdamWOptions>;
extern template class ScheduleFree<ScheduleFreeSGDOptions>;

}  // namespace hasten
