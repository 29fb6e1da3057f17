// File: hasten/anatomy/out_of_memory.h
// Explains memory that runs out in a training step: which component, layer and operator needed it,
// what held the rest, and with how many rows the step would have fitted. The Trainer does this by
// itself; in a loop of your own:
//
//   for (auto& batch : train_loader) {
//     const std::int64_t rows = batch.data.size(0);
//     run_explained({.step = [&](std::int64_t some) { train_on(first_rows(batch, some)); },
//                    .rows = rows,
//                    .parameters = model->parameters(),
//                    .anatomy = [&](const AnatomyOptions& o) { return accelerator.anatomy(o); }});
//   }
//
// Nothing is recorded while a step runs; only its start is marked (a microsecond for 200
// parameters). After the failure, a fork of this process runs the same step in a dry run
// (hasten/anatomy/dry_run.h) and finds the allocation by its size, by the number of autograd nodes
// that existed, and by the number of gradients that were complete. Further dry runs with fewer rows
// find what would have fitted. None of this changes this process.
//
// A GPU is simulated in the fork, where CUDA does not work. There is no explanation if the step
// cannot be run in a dry run, if it runs on a TPU or on a GPU other than the first of the process,
// or if the fork fails. The error then has LibTorch's text and a general hint. On the CPU the limit
// is the size of the address space (ulimit -v, RLIMIT_AS); a control group's limit kills a process
// instead. Thread rule: the same as for the step; one call at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "hasten/anatomy/anatomy.h"
#include "hasten/base/detail/export.h"

namespace hasten {

// True for the errors of allocators: LibTorch's errors on any device, std::bad_alloc, and hasten's
// MemoryError.
HASTEN_API bool is_out_of_memory(const std::exception& error);

// A change of the step that takes less memory, such as a different optimizer.
struct MemorySavingChange {
  std::string name = {};              // For the message: "with optim adafactor".
  std::function<void()> change = {};  // Called in a fork of this process.
};

struct ExplainableStep {
  // Runs the step with the first `rows` rows of the batch. Dry runs call it again.
  std::function<void(std::int64_t rows)> step = {};
  std::int64_t rows = 1;
  // The trained parameters. Their gradients show how far a backward pass got.
  std::vector<at::Tensor> parameters = {};
  // Makes an Anatomy that knows the model and the optimizer.
  std::function<Anatomy(const AnatomyOptions&)> anatomy = {};
  std::vector<MemorySavingChange> memory_saving_changes = {};  // Also tried with all rows.
};

// Runs the step. If memory runs out, throws MemoryError "anatomy.out-of-memory" with the
// explanation. Other errors pass through.
HASTEN_API void run_explained(const ExplainableStep& step);

}  // namespace hasten
