#include "hasten/prepare/detail/prepared.h"

#include <torch/torch.h>

#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"
#include "optim/zero_grad.h"
#include "prepare/accelerator_state.h"
#include "prepare/optimizer_step.h"

namespace hasten {

detail::ForwardScope::ForwardScope(AcceleratorState& state, const torch::nn::Module& module)
    : state_(state) {
  state_.check_forward(module);
  state_.count_forward_pass();
  state_.gradients.sync_buffers(&module);
  state_.observers.notify(&StepObserver::enter, StepPhase::forward);
  guard_.emplace(state_.precision, state_.process.device.type());
}

detail::ForwardScope::~ForwardScope() {
  guard_.reset();
  state_.observers.notify(&StepObserver::leave, StepPhase::forward);
}

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<AcceleratorState> state)
    : optimizer_(std::move(optimizer)),
      state_(std::move(state)),
      synced_optimizer_(state_->saved.find_optimizer(optimizer_.get())) {
  if (synced_optimizer_) step_ = synced_optimizer_->step.lock();
  if (step_) {  // another handle exists
    optimizer_ = synced_optimizer_->shared();
    return;
  }
  synced_optimizer_ = std::make_shared<SyncedOptimizer>(optimizer_);
  step_ = std::make_shared<OptimizerStep>(optimizer_, state_->stepping, state_);
  synced_optimizer_->step = step_;
  state_->observers.add_optimizer(optimizer_);
  state_->synced_states.add(synced_optimizer_);
  state_->saved.add_optimizer(synced_optimizer_);
}

void PreparedOptimizer::check_not_empty() const { (void)unwrap(); }

std::vector<at::Tensor> PreparedOptimizer::parameters() const {
  return synced_optimizer_->parameters();
}

bool PreparedOptimizer::step_was_skipped() const {
  check_not_empty();
  return synced_optimizer_->step_was_skipped;
}

void PreparedOptimizer::step() {
  check_not_empty();
  const std::vector<at::Tensor> stepped = parameters();
  if (!state_->close_due_windows(stepped)) return;
  state_->warn_about_untrained(stepped);
  const bool steps = state_->may_step(*synced_optimizer_);
  state_->accumulation.mark_gradients_used(stepped);
  if (!steps) return;
  {
    const PhaseScope phase(state_->observers, StepPhase::optimizer);
    step_->run();
  }
  count_step();
}

at::Tensor PreparedOptimizer::step(const std::function<at::Tensor()>& closure) {
  check_not_empty();
  // An evaluation of the closure reports its own phases, so it leaves the optimizer's phase
  // meanwhile.
  std::optional<PhaseScope> phase;
  step_->check_closure();
  state_->check_without_elastic_ranks("optimizer.step(closure)");
  state_->check_without_scaled_losses("optimizer.step(closure)");
  const auto evaluation = [&] {
    phase.reset();
    const at::Tensor loss = evaluate(closure);
    phase.emplace(state_->observers, StepPhase::optimizer);
    return loss;
  };
  phase.emplace(state_->observers, StepPhase::optimizer);
  const at::Tensor loss = optimizer_->step(evaluation);
  phase.reset();
  state_->accumulation.mark_gradients_used(parameters());
  count_step();
  return loss;
}

at::Tensor PreparedOptimizer::evaluate(const std::function<at::Tensor()>& closure) {
  const std::vector<at::Tensor> stepped = parameters();
  state_->accumulation.restart_windows(stepped);
  const at::AutoGradMode with_grad(true);
  const at::Tensor loss = closure();
  if (!state_->close_due_windows(stepped)) {
    throw UsageError(
        "prepare.open-window",
        {.what = "the closure of optimizer.step(closure)",
         .got = "fewer micro-batches than an accumulation window has",
         .expected = "the whole window in each evaluation",
         .hint = "loop over gradient_accumulation_steps micro-batches in the closure"});
  }
  return state_->gradients.mean_loss(loss);
}

void PreparedOptimizer::count_step() {
  ++synced_optimizer_->steps;
  state_->group.set_step(synced_optimizer_->steps);
  state_->background_save.report_if_finished();
  state_->observers.notify(&StepObserver::on_step);
}

void PreparedOptimizer::zero_grad(bool set_to_none) {
  check_not_empty();
  const std::vector<at::Tensor> all = synced_optimizer_->parameters_with_unstepped();
  if (state_->accumulation.holds_gradients_of(all)) return;
  hasten::zero_grad(all, set_to_none);
  synced_optimizer_->reset_unscaling();
  state_->gradients.mark_cleared(all);
  state_->accumulation.mark_gradients_used(all);
}

void PreparedOptimizer::set_unstepped_parameters(const std::vector<at::Tensor>& all) {
  check_not_empty();
  TensorSet stepped;
  distinct(parameters(), stepped);
  synced_optimizer_->unstepped = distinct(all, stepped);
}

std::int64_t PreparedOptimizer::steps() const {
  check_not_empty();
  return synced_optimizer_->steps;
}

DeferredScalar PreparedOptimizer::norm_in_backward() const {
  check_not_empty();
  return step_->norm_in_backward();
}

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     std::shared_ptr<AcceleratorState> state)
    : scheduler_(std::move(scheduler)),
      state_(std::move(state)),
      synced_scheduler_(state_->saved.find_scheduler(scheduler_.get())) {
  if (synced_scheduler_) {  // another handle exists
    scheduler_ = synced_scheduler_->shared();
    return;
  }
  synced_scheduler_ = std::make_shared<SyncedScheduler>(scheduler_);
  state_->synced_states.add(synced_scheduler_);
  state_->saved.add_scheduler(synced_scheduler_);
}

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     const PreparedOptimizer& optimizer)
    : PreparedScheduler(std::move(scheduler), checked(optimizer).state_) {
  if (synced_scheduler_->optimizer) return;
  synced_scheduler_->optimizer = optimizer.synced_optimizer_;
  synced_scheduler_->optimizer_steps = optimizer.steps();
}

const PreparedOptimizer& PreparedScheduler::checked(const PreparedOptimizer& optimizer) {
  optimizer.check_not_empty();
  return optimizer;
}

void PreparedScheduler::step() {
  (void)unwrap();  // throws if the handle is empty
  const auto& optimizer = synced_scheduler_->optimizer;
  if (optimizer ? optimizer->steps == synced_scheduler_->optimizer_steps
                : !state_->accumulation.sync_gradients() || state_->step_was_skipped())
    return;
  if (optimizer) synced_scheduler_->optimizer_steps = optimizer->steps;
  synced_scheduler_->step();
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
