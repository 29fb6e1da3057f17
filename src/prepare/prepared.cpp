#include "hasten/prepare/prepared.h"

#include <torch/torch.h>

#include "hasten/base/error.h"

namespace hasten {

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<Step> step)
    : optimizer_(std::move(optimizer)), step_(std::move(step)), count_(std::make_shared<Count>()) {
  step_->observers.optimizer(optimizer_);
}

void PreparedOptimizer::step() {
  if (!step_->sync_gradients()) return;
  {
    const PhaseScope phase(step_->observers, StepPhase::optimizer);
    optimizer_->step();
  }
  step_->stepped();
  ++count_->steps;
  step_->group.at_step(count_->steps);
  step_->observers.tell(&StepObserver::on_step);
}

void detail::throw_uneven_batches() {
  throw UsageError(
      "prepare.uneven-batches",
      {.what = "a loader whose batches cannot be copied ends before every process has one",
       .hint = "hasten::make_loader divides rows instead"});
}

void PreparedOptimizer::zero_grad(bool set_to_none) {
  for (const auto& group : optimizer_->param_groups()) {
    // One parameter tells for its group: windows hold whole models.
    if (!group.params().empty() && step_->window_is_open({group.params().front()})) return;
  }
  // LibTorch's own detaches first, which gradients that live in buckets do not allow.
  for (const auto& group : optimizer_->param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      at::Tensor& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      set_to_none ? gradient.reset() : static_cast<void>(gradient.detach().zero_());
    }
  }
}

std::int64_t PreparedOptimizer::steps() const { return count_->steps; }

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     std::shared_ptr<Step> step)
    : scheduler_(std::move(scheduler)), step_(std::move(step)) {}

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     const PreparedOptimizer& optimizer)
    : scheduler_(std::move(scheduler)),
      step_(optimizer.step_),
      count_(optimizer.count_),
      seen_(optimizer.steps()) {}

void PreparedScheduler::step() {
  if (count_ ? count_->steps == seen_ : !step_->sync_gradients()) return;
  if (count_) seen_ = count_->steps;
  scheduler_->step();
}

PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                const SchedulerOptions& options) {
  return PreparedScheduler(
      std::shared_ptr<torch::optim::LRScheduler>(get_scheduler(name, optimizer.unwrap(), options)),
      optimizer);
}

PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                std::int64_t num_warmup_steps, std::int64_t num_training_steps) {
  return get_scheduler(
      name, optimizer,
      {.num_warmup_steps = num_warmup_steps, .num_training_steps = num_training_steps});
}

}  // namespace hasten
