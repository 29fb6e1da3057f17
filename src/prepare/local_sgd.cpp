#include "hasten/prepare/detail/local_sgd.h"

#include <exception>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
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
  if (options_.enabled)
    before_ = state_->gradients.set_synchronization(model_.get(), Synchronization::never);
}

LocalSGD::~LocalSGD() noexcept(false) {
  if (!options_.enabled) return;
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
}

}  // namespace hasten
