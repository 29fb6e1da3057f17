// File: prepare/gradient_exchange.h (internal)
// How a bucket of gradients becomes the sum over the processes.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "hasten/prepare/data_parallel.h"

namespace hasten {

using NativeGroup = c10::intrusive_ptr<c10d::ProcessGroup>;
using Exchanged = c10::intrusive_ptr<c10::ivalue::Future>;

// Buckets come in the order of their index, one pass after the other, and all that an exchange asks
// of the group it asks within sum(): collectives then run in the same order in every process.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // The future's value is the sum of every process's bucket times its factor, in the bucket's type;
  // it may be the bucket's own memory.
  virtual Exchanged sum(c10d::GradBucket& bucket, double factor) = 0;
};

// What the options ask for. Throws UsageError "prepare.power-sgd".
std::shared_ptr<GradientExchange> exchange_of(const DistributedDataParallelKwargs& options,
                                              const NativeGroup& group);

// What sparse rows travel as; none: as they are.
std::optional<at::ScalarType> wire_type(const DistributedDataParallelKwargs& options);

}  // namespace hasten
