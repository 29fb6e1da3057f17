// File: prepare/power_sgd.h (internal)
// PowerSGD sends gradients as two thin matrices (Vogels, Karimireddy, Jaggi 2019,
// arXiv:1905.13727). It computes the same numbers as torch's hooks of that name.
//
// Checkpoints do not have its state. The reducer of a new process sends the first gradients in
// other buckets, so that the errors of the old buckets would belong to other gradients.
#pragma once

#include <memory>

#include "prepare/gradient_exchange.h"

namespace hasten {

// `uncompressed_exchange` sums the buckets of the first steps. Throws UsageError
// "prepare.power-sgd".
std::shared_ptr<GradientExchange> power_sgd(
    const PowerSGDState& options, bool batched, NativeGroup group,
    std::shared_ptr<GradientExchange> uncompressed_exchange);

}  // namespace hasten
