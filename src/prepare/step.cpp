#include "hasten/prepare/step.h"

#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"
#include "process/living.h"

namespace hasten {

Step::Step(std::int64_t accumulation_steps, Precision precision, ProcessState process)
    : accumulation_steps(accumulation_steps),
      precision(precision),
      process(std::move(process)),
      living_(std::make_shared<LivingMark>(Living::accelerator)) {
  if (accumulation_steps < 1) {
    throw UsageError("prepare.accumulation-steps", {.what = "gradient_accumulation_steps",
                                                    .got = str(accumulation_steps),
                                                    .expected = "1 or more"});
  }
}

void Step::enter(const std::vector<void*>& models, const std::vector<at::Tensor>& parameters) {
  if (inside_)
    throw UsageError("prepare.nested-accumulate",
                     {.what = "accumulate() inside accumulate()",
                      .hint = "hand all models of a step to one call"});
  window_ = &windows_[models];
  if (window_->closed) *window_ = Window{};
  window_->parameters = parameters;
  inside_ = true;
  backwards_ = 0;
  const bool last = !loaders.empty() && loaders.back()->at_last_batch;
  sync_ = last || window_->batches + 1 >= accumulation_steps;
}

void Step::leave() { inside_ = false; }

void Step::backward(const at::Tensor& loss, double items) {
  if (loss.numel() != 1) {
    throw UsageError("prepare.loss-not-scalar",
                     {.what = "backward(loss)",
                      .got = str("a tensor of ", loss.numel(), " elements"),
                      .expected = "one number",
                      .hint = "take the mean of the losses"});
  }
  if (precision != Precision::no && forwards == 0) {
    throw UsageError(
        "prepare.unprepared-forward",
        {.what = "backward() under mixed precision before any call of a prepared model",
         .hint = "call the model that prepare() gave, model(x): model->forward(x) and the raw "
                 "module run without autocast"});
  }
  const PhaseScope phase(observers, StepPhase::backward);
  if (window_ == nullptr || !inside_) {  // no accumulation: the weight of the only batch cancels
    loss.backward();
    return;
  }
  const double weight = items < 0 ? 1.0 : items;
  const bool first = backwards_++ == 0;  // several losses of one micro-batch share its weight
  if (first) {
    ++window_->batches;
    window_->weight += weight;
  }
  if (sync_ && window_->batches == 1)
    return loss.backward();  // the only micro-batch: its weight cancels
  // A micro-batch without an item has no loss to speak of (its mean is 0 / 0) and adds nothing.
  if (weight > 0) {
    const double share =
        sync_ && !first ? weight / window_->weight : weight;  // the window was divided already
    (share == 1.0 ? loss : loss * share).backward();
  }
  if (sync_ && first && window_->weight > 0)
    scale_gradients_(window_->parameters, 1.0 / window_->weight);
}

bool Step::window_is_open(const std::vector<at::Tensor>& parameters) const {
  for (const auto& [models, window] : windows_) {
    if (window.batches == 0 || window.closed) continue;
    for (const at::Tensor& parameter : window.parameters) {
      for (const at::Tensor& other : parameters) {
        if (parameter.is_same(other)) return true;
      }
    }
  }
  return false;
}

void Step::stepped() {
  if (window_ != nullptr) window_->closed = true;
}

void Step::forget() {
  windows_.clear();
  window_ = nullptr;
  inside_ = false;
  sync_ = true;
}

}  // namespace hasten
