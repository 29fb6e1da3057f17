// File: prepare/gradient_exchange.h (internal)
// Sums buckets of gradients over the processes.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "hasten/prepare/detail/data_parallel.h"

namespace hasten {

using NativeGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
using ReductionFuture = c10::intrusive_ptr<c10::ivalue::Future>;

// Buckets arrive in the order of their index, one pass after the other. Collectives are issued only
// within sum(), so they run in the same order in every process.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // Returns a future of the sum over the processes of bucket times factor, in the bucket's type.
  // The value may use the bucket's own memory.
  virtual ReductionFuture sum(c10d::GradBucket& bucket, double factor) = 0;
};

bool is_power_sgd(CommunicationHook hook);
// Returns the exchange that the options select. Throws UsageError "prepare.power-sgd".
std::shared_ptr<GradientExchange> make_gradient_exchange(
    const DistributedDataParallelKwargs& options, const NativeGroup& group);

// Returns the type in which sparse rows are sent, or nullopt if they keep their own.
std::optional<at::ScalarType> wire_type(const DistributedDataParallelKwargs& options);

}  // namespace hasten
