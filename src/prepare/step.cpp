#include "hasten/prepare/step.h"

#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"

namespace hasten {

Step::Step(std::int64_t accumulation_steps, Precision precision, ProcessState process)
    : accumulation_steps(accumulation_steps), precision(precision), process(std::move(process)) {
  if (accumulation_steps < 1) {
    throw UsageError("prepare.accumulation-steps",
                     {.what = "gradient_accumulation_steps", .got = str(accumulation_steps), .expected = "1 or more"});
  }
}

void Step::enter(const std::vector<void*>& models, const std::vector<at::Tensor>& parameters) {
  if (inside_) throw UsageError("prepare.nested-accumulate", {.what = "accumulate() inside accumulate()", .hint = "hand all models of a step to one call"});
  window_ = &windows_[models];
  window_->parameters = parameters;
  inside_ = true;
  const bool last = !loaders.empty() && loaders.back()->at_last_batch;
  sync_ = last || window_->batches + 1 >= accumulation_steps;
}

void Step::leave() { inside_ = false; }

void Step::backward(const at::Tensor& loss, double items) {
  if (loss.numel() != 1) {
    throw UsageError("prepare.loss-not-scalar", {.what = "backward(loss)", .got = str("a tensor of ", loss.numel(), " elements"),
                                                 .expected = "one number", .hint = "take the mean of the losses"});
  }
  if (precision != Precision::no && forwards == 0) {
    throw UsageError("prepare.unprepared-forward",
                     {.what = "backward() under mixed precision without a call of a prepared model since the last step",
                      .hint = "call the model that prepare() gave, model(x): model->forward(x) and the raw module run without autocast"});
  }
  if (window_ == nullptr || !inside_) {  // no accumulation: the weight of the only batch cancels
    loss.backward();
    return;
  }
  const double weight = items < 0 ? 1.0 : items;
  const bool whole = sync_ && window_->batches == 0;
  (whole || weight == 1.0 ? loss : loss * weight).backward();
  ++window_->batches;
  window_->weight += weight;
  if (sync_ && !whole && window_->weight > 0) scale_gradients_(window_->parameters, 1.0 / window_->weight);
}

void Step::stepped() {
  forwards = 0;
  if (window_ != nullptr) *window_ = Window{.batches = 0, .weight = 0, .parameters = std::move(window_->parameters)};
}

}  // namespace hasten
