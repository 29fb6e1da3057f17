#include "hasten/prepare/detail/local_sgd.h"

#include <torch/torch.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "optim/distinct.h"
#include "prepare/accelerator_state.h"

namespace hasten {

LocalSGD::LocalSGD(std::shared_ptr<AcceleratorState> state,
                   std::shared_ptr<const torch::nn::Module> model, LocalSGDOptions options)
    : state_(std::move(state)),
      model_(std::move(model)),
      options_(options),
      uncaught_exceptions_(std::uncaught_exceptions()) {
  state_->check_without_elastic_ranks("LocalSGD");
  if (options_.local_sgd_steps < 1) {
    throw UsageError(
        "prepare.local-sgd-steps",
        {.what = "local_sgd_steps", .got = str(options_.local_sgd_steps), .expected = "1 or more"});
  }
  options_.enabled = options_.enabled && state_->group.size() > 1;
  if (!options_.enabled) return;
  before_ = state_->gradients.set_synchronization(model_.get(), Synchronization::never);
  averaged_optimizer_steps_ = optimizer_steps();
  save_check_ =
      std::make_shared<CheckpointFunction>([this](const std::filesystem::path&) { check_save(); });
  state_->saved.before_save.push_back(save_check_);
}

LocalSGD::~LocalSGD() noexcept(false) {
  if (!options_.enabled) return;
  std::erase(state_->saved.before_save, save_check_);
  state_->gradients.set_synchronization(model_.get(), before_);
  const bool unwinds = std::uncaught_exceptions() > uncaught_exceptions_;
  if (!unwinds && steps_ % options_.local_sgd_steps != 0) average();
}

void LocalSGD::step() {
  if (!options_.enabled || state_->accumulation.has_incomplete_window(model_.get())) return;
  if (++steps_ % options_.local_sgd_steps == 0) average();
}

void LocalSGD::average() {
  state_->gradients.average(model_.get());
  ++averages_;
  averaged_optimizer_steps_ = optimizer_steps();
}

std::int64_t LocalSGD::optimizer_steps() const {
  TensorSet own;
  for (const at::Tensor& parameter : model_->parameters())
    own.insert(parameter.unsafeGetTensorImpl());
  std::int64_t steps = 0;
  for (const auto& optimizer : state_->saved.optimizers()) {
    const std::vector<at::Tensor> stepped = optimizer->parameters();
    const bool is_of_model = std::any_of(stepped.begin(), stepped.end(), [&](const auto& each) {
      return own.count(each.unsafeGetTensorImpl()) > 0;
    });
    if (is_of_model) steps += optimizer->steps;
  }
  return steps;
}

// A checkpoint has the weights of rank 0 only. The count of the optimizer also shows a step after
// which LocalSGD::step() has not been called yet.
void LocalSGD::check_save() const {
  if (steps_ % options_.local_sgd_steps == 0 && optimizer_steps() == averaged_optimizer_steps_)
    return;
  throw UsageError("prepare.local-sgd-save",
                   {.what = "save_state() in the scope of a LocalSGD",
                    .got = "steps that were made since the last average, after which each process "
                           "has different weights",
                    .expected = "a call right after an average",
                    .hint = str("save after a local_sgd.step() that has averaged the weights "
                                "(after every ",
                                options_.local_sgd_steps, " steps), or after the scope")});
}

}  // namespace hasten
