#include "trainer/step_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

void require_gradient(const std::vector<at::Tensor>& parameters, std::int64_t step) {
  const auto has_gradient = [](const at::Tensor& parameter) { return parameter.grad().defined(); };
  if (std::any_of(parameters.begin(), parameters.end(), has_gradient)) return;
  throw UsageError(
      "trainer.loss-without-gradient",
      {.what = str("step ", step),
       .got = "a gradient for no parameter of the module",
       .expected = "a loss that depends on a parameter that requires a gradient",
       .hint = "compute it from the outputs of the Trainer's module, and change its parameters in "
               "place, with copy_(): assigning to a member leaves the registered one as it is"});
}

std::string nonfinite_loss_text(const LossRecord::NonfiniteLosses& bad) {
  return str("the loss of step ", bad.step, " is ", std::isnan(bad.loss) ? "NaN" : "infinite",
             bad.count > 1
                 ? str(", the first of ", bad.count, " losses read together that are not finite")
                 : "");
}

void throw_nonfinite_loss(const LossRecord::NonfiniteLosses& bad) {
  throw DivergedError(
      "trainer.nonfinite-loss",
      {.what = str("step ", bad.step),
       .got = str("a loss of ", std::isnan(bad.loss) ? "NaN" : "infinity"),
       .expected = "a finite loss",
       .hint = "the weights are those before this step; a smaller learning_rate, warm-up, or "
               "max_grad_norm usually helps"});
}

}  // namespace hasten
