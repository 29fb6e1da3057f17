// File: hasten/data/detail/rebalance.h
// Makes batches of different sizes but equal cost: the rows of an optimizer step are divided
// between the processes and the micro-batches so that long rows are in small batches and short rows
// in large batches. No process then waits long for another, and little padding is computed.
//
//   auto loader = make_loader(dataset, {.batch_size = 8,
//                                       .shuffle = true,
//                                       .rebalance = Rebalance{.lengths = lengths, .steps = 4}});
//
// An optimizer step has the same rows as without rebalancing: world size * batch_size * steps, or
// the rest of the epoch. A batch of n rows with a longest row of L tokens costs n * L + 0.001 * n *
// L^2, for the layers and the attention. Each micro-batch has at least one row; if the last step of
// an epoch has fewer rows than micro-batches, rows from the start of the epoch fill it up and do
// not count (BatchInfo::real_rows). A loader that does not start at the first row of a step divides
// the rows from its start on.
//
// make_loader throws ConfigError "data.option" for a stream or steps below 1, and UsageError
// "data.order" unless there is one length for each row. Thread rule: values and pure functions.
// Source: BatchRebalanceSampler of transformers 5.23 (train_sampling_strategy batch_rebalance),
// which makes the same batches of a full step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

struct Rebalance {
  std::vector<std::int64_t> lengths = {};  // The number of tokens of each row of the dataset.
  std::int64_t steps = 1;                  // Micro-batches of a process in an optimizer step.
};

// Divides rows, which are indices of `lengths`, into world * steps batches of nearly equal cost.
// The most expensive ones come first: batch s * world + r belongs to process r in micro-batch s.
// Throws UsageError "data.order" if there are fewer rows than batches.
HASTEN_API std::vector<std::vector<std::int64_t>> rebalanced_batches(
    std::span<const std::int64_t> rows, std::span<const std::int64_t> lengths, std::int64_t world,
    std::int64_t steps);

}  // namespace hasten
