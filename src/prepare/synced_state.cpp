#include "prepare/synced_state.h"

#include <torch/torch.h>

#include <sstream>
#include <string_view>

#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Gives access to the counter of LibTorch's schedulers, which is protected.
struct StepCount : torch::optim::LRScheduler {
  static auto member() { return &StepCount::step_count_; }
};

}  // namespace

std::vector<at::Tensor> SyncedOptimizer::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& group : optimizer_->param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

std::vector<at::Tensor> SyncedOptimizer::parameters_with_unstepped() const {
  std::vector<at::Tensor> all = parameters();
  all.insert(all.end(), unstepped.begin(), unstepped.end());
  return all;
}

std::string SyncedOptimizer::state() const {
  torch::serialize::OutputArchive archive;
  optimizer_->save(archive);
  std::ostringstream out;
  archive.save_to(out);
  return str(steps, "\n", out.str());
}

void SyncedOptimizer::restore(const std::string& state) {
  const std::size_t end = state.find('\n');
  steps = parse_number<std::int64_t>(std::string_view(state).substr(0, end)).value();
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
  const std::string_view numbers = state;
  const std::size_t space = numbers.find(' ');
  const auto target = parse_number<std::int64_t>(numbers.substr(0, space)).value();
  while (steps_ < target) step();
  optimizer_steps = parse_number<std::int64_t>(numbers.substr(space + 1)).value();
}

SyncedScheduler::Counts SyncedScheduler::counts() const {
  return {.steps = steps_,
          .step_count = static_cast<std::int64_t>(scheduler_.get()->*StepCount::member()),
          .optimizer_steps = optimizer_steps};
}

void SyncedScheduler::set_counts(const Counts& counts) {
  steps_ = counts.steps;
  scheduler_.get()->*StepCount::member() = static_cast<unsigned>(counts.step_count);
  optimizer_steps = counts.optimizer_steps;
}

void SyncedStates::add(const std::shared_ptr<SyncedOptimizer>& optimizer) {
  states_.push_back(optimizer);
}

void SyncedStates::add(const std::shared_ptr<SyncedScheduler>& scheduler) {
  states_.insert(states_.begin(), scheduler);
}

void SyncedStates::add(const std::shared_ptr<SyncedState>& state) { states_.push_back(state); }

std::vector<std::shared_ptr<SyncedState>> SyncedStates::all() const {
  std::vector<std::shared_ptr<SyncedState>> living;
  for (const auto& each : states_) {
    if (auto state = each.lock()) living.push_back(std::move(state));
  }
  return living;
}

}  // namespace hasten
