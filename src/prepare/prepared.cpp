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
      count_(std::make_shared<detail::FollowedOptimizer>(optimizer_)) {
  step_->observers.optimizer(optimizer_);
  step_->followed.push_back(count_);
}

std::vector<at::Tensor> PreparedOptimizer::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer_->param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void PreparedOptimizer::step() {
  const std::vector<at::Tensor> stepped = parameters();
  if (!step_->complete(stepped)) return;
  step_->warn_of_untrained(stepped);
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
  step_->begin_anew(stepped);
  const at::AutoGradMode with_grad(true);
  const at::Tensor loss = closure();
  if (!step_->complete(stepped)) {
    throw UsageError(
        "prepare.open-window",
        {.what = "the closure of optimizer.step(closure)",
         .got = "fewer micro-batches than an accumulation window has",
         .expected = "the whole window in each evaluation",
         .hint = "loop over gradient_accumulation_steps micro-batches in the closure"});
  }
  return step_->loss_of_all(loss);
}

void PreparedOptimizer::count_step() {
  ++count_->steps;
  step_->group.at_step(count_->steps);
  step_->observers.tell(&StepObserver::on_step);
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
  step_->cleared(all);
}

std::int64_t PreparedOptimizer::steps() const { return count_->steps; }

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     std::shared_ptr<Step> step)
    : scheduler_(std::move(scheduler)),
      step_(std::move(step)),
      calls_(std::make_shared<detail::FollowedScheduler>(scheduler_)) {
  follow_first();
}

PreparedScheduler::PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                                     const PreparedOptimizer& optimizer)
    : scheduler_(std::move(scheduler)),
      step_(optimizer.step_),
      count_(optimizer.count_),
      calls_(std::make_shared<detail::FollowedScheduler>(scheduler_)) {
  calls_->seen = optimizer.steps();
  follow_first();
}

// Inserts the scheduler before every optimizer: the learning rates that it sets while it catches up
// are then replaced by the right ones, with the optimizer's state.
void PreparedScheduler::follow_first() { step_->followed.insert(step_->followed.begin(), calls_); }

void PreparedScheduler::step() {
  if (count_ ? count_->steps == calls_->seen : !step_->sync_gradients()) return;
  if (count_) calls_->seen = count_->steps;
  calls_->step();
}

namespace detail {

std::string FollowedOptimizer::state() const {
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return str(steps, "\n", out.str());
}

void FollowedOptimizer::follow(const std::string& state) {
  const std::size_t end = state.find('\n');
  steps = std::stoll(state.substr(0, end));
  std::istringstream bytes(state.substr(end + 1));
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  optimizer_->load(archive);
}

void FollowedScheduler::step() {
  scheduler_->step();
  ++steps_;
}

std::string FollowedScheduler::state() const { return str(steps_, " ", seen); }

void FollowedScheduler::follow(const std::string& state) {
  const std::int64_t there = std::stoll(state);
  while (steps_ < there) step();
  seen = std::stoll(state.substr(state.find(' ') + 1));
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
