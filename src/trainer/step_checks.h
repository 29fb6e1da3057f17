// File: trainer/step_checks.h (internal)
// The checks of a training run's steps. They report or refuse a loss that is not finite, and a step
// that would change no parameter.
//
//   require_gradient(parameters, 3);   // of step 3
//   if (!std::isfinite(loss)) throw_nonfinite_loss({.step = 3, .count = 1, .loss = loss});
//
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/loss_record.h"

namespace hasten {

// Throws UsageError "trainer.loss-without-gradient" if no parameter has a gradient. A loss that has
// a gradient, but does not depend on a parameter of the module, would train nothing.
void require_gradient(const std::vector<at::Tensor>& parameters, std::int64_t step);

std::string nonfinite_loss_text(const LossRecord::NonfiniteLosses& bad);
// Throws DivergedError "trainer.nonfinite-loss".
[[noreturn]] void throw_nonfinite_loss(const LossRecord::NonfiniteLosses& bad);

}  // namespace hasten
