#include "hasten/prepare/prepared.h"

#include <torch/torch.h>

#include <optional>
#include <sstream>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/zero_grad.h"

namespace hasten {

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<Step> step)
    : optimizer_(std::move(optimizer)),
      step_(std::move(step)),
      synced_optimizer_(std::make_shared<detail::SyncedOptimizer>(optimizer_)) {
  step_->observers.add_optimizer(optimizer_);
  step_->synced_states.push_back(synced_optimizer_);
}

std::vector<at::Tensor> PreparedOptimizer::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer_->param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void PreparedOptimizer::step() {
  const std::vector<at::Tensor> stepped = parameters();
  if (!step_->close_due_windows(stepped)) return;
  step_->warn_about_untrained(stepped);
  {
    const PhaseScope phase(step_->observers, StepPhase::optimizer);
    optimizer_->step();
  }
  count_step();
}

at::Tensor PreparedOptimizer::step(const std::function<at::Tensor()>& closure) {
  // An evaluation reports the phases of a step itself, so the optimizer's phase is left meanwhile.
  std::optional<PhaseScope> phase;
  const auto evaluation = [&] {
    phase.reset();
    const at::Tensor loss = evaluate(closure);
    phase.emplace(step_->observers, StepPhase::optimizer);
    return loss;
  };
  phase.emplace(step_->observers, StepPhase::optimizer);
  const at::Tensor loss = optimizer_->step(evaluation);
  phase.reset();
  count_step();
  return loss;
}

at::Tensor PreparedOptimizer::evaluate(const std::function<at::Tensor()>& closure) {
  const std::vector<at::Tensor> stepped = parameters();
  step_->restart_windows(stepped);
  const at::AutoGradMode with_grad(true);
  const at::Tensor loss = closure();
  if (!step_->close_due_windows(stepped)) {
    throw UsageError(
        "prepare.open-window",
        {.what = "the closure of optimizer.step(closure)",
         .got = "fewer micro-batches than an accumulation window has",
         .expected = "the whole window in each evaluation",
         .hint = "loop over gradient_accumulation_steps micro-batches in the closure"});
  }
  return step_->mean_loss(loss);
}

void PreparedOptimizer::count_step() {
  ++synced_optimizer_->steps;
  step_->group.set_step(synced_optimizer_->steps);
  step_->observers.notify(&StepObserver::on_step);
}

void detail::throw_uneven_batches() {
  throw UsageError(
      "prepare.uneven-batches",
      {.what = "a loader whose batches cannot be copied ended before every process had a batch",
       .hint = "use hasten::make_loader, which splits the rows instead"});
}

void PreparedOptimizer::zero_grad(bool set_to_none) {
  const std::vector<at::Tensor> all = parameters();
  if (step_->window_is_open(all)) return;
  hasten::zero_grad(*optimizer_, set_to_none);
  step_->mark_cleared(all);
}

std::int64_t PreparedOptimizer::steps() const { return synced_optimizer_->steps; }

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     std::shared_ptr<Step> step)
    : scheduler_(std::move(scheduler)),
      step_(std::move(step)),
      synced_scheduler_(std::make_shared<detail::SyncedScheduler>(scheduler_)) {
  register_before_optimizers();
}

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     const PreparedOptimizer& optimizer)
    : scheduler_(std::move(scheduler)),
      step_(optimizer.step_),
      synced_optimizer_(optimizer.synced_optimizer_),
      synced_scheduler_(std::make_shared<detail::SyncedScheduler>(scheduler_)) {
  synced_scheduler_->optimizer_steps = optimizer.steps();
  register_before_optimizers();
}

// Inserts the scheduler before every optimizer: the learning rates that it sets while it catches up
// are then replaced by the right ones, with the optimizer's state.
void PreparedScheduler::register_before_optimizers() {
  step_->synced_states.insert(step_->synced_states.begin(), synced_scheduler_);
}

void PreparedScheduler::step() {
  if (synced_optimizer_ ? synced_optimizer_->steps == synced_scheduler_->optimizer_steps
                        : !step_->sync_gradients())
    return;
  if (synced_optimizer_) synced_scheduler_->optimizer_steps = synced_optimizer_->steps;
  synced_scheduler_->step();
}

namespace detail {

std::string SyncedOptimizer::state() const {
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return str(steps, "\n", out.str());
}

void SyncedOptimizer::restore(const std::string& state) {
  const std::size_t end = state.find('\n');
  steps = std::stoll(state.substr(0, end));
  std::istringstream bytes(state.substr(end + 1));
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  optimizer_->load(archive);
}

void SyncedScheduler::step() {
  scheduler_->step();
  ++steps_;
}

std::string SyncedScheduler::state() const { return str(steps_, " ", optimizer_steps); }

void SyncedScheduler::restore(const std::string& state) {
  const std::int64_t target = std::stoll(state);
  while (steps_ < target) step();
  optimizer_steps = std::stoll(state.substr(state.find(' ') + 1));
}

}  // namespace detail

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
