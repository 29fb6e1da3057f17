// File: hasten/trainer/batch_size.h
// Finds the largest batch that fits into the memory of every process, and keeps the number of rows
// of a step.
//
//   const BatchSize fits = find_executable_batch_size(group, {.rows = 64}, [&](std::int64_t rows) {
//     const TensorDict batch = {{"input_ids", at::randint(5, 100, {rows, 512})},
//                               {"labels", at::zeros({rows}, at::kLong)}};
//     model->forward(batch).loss.backward();
//     model->zero_grad();
//   });
//   // a loader with batches of fits.rows, and fits.accumulation of them in each window
//
// Every process tries a batch. If one of them runs out of memory, all try half of it with twice the
// number of micro-batches, so the number of rows of a step stays the same. The trial must not
// communicate: call the module itself and not a prepared one, whose backward pass exchanges
// gradients. Any other exception is thrown in all processes. The option auto_find_batch_size of the
// Trainer does the same without a trial.
//
// Throws MemoryError "trainer.batch-size-floor" if the smallest batch does not fit, UsageError
// "trainer.batch-size" for a number below 1 or one that differs between processes, and what the
// trial throws. A collective. Thread rule: the same as for the group's collectives. Source:
// find_executable_batch_size of Accelerate 1.15; there, processes do not agree on the batch, and
// steps get smaller.
#pragma once

#include <cstdint>
#include <functional>

#include "hasten/base/detail/export.h"
#include "hasten/process/group.h"

namespace hasten {

struct BatchSize {
  std::int64_t rows = 1;          // in a micro-batch of one process
  std::int64_t accumulation = 1;  // the micro-batches of a step
  std::int64_t floor = 1;         // the fewest rows to try
};

HASTEN_API BatchSize find_executable_batch_size(
    const Group& group, BatchSize start, const std::function<void(std::int64_t rows)>& trial);

}  // namespace hasten
