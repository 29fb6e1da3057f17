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
// Nothing is recorded while a step runs: a mark is taken before it (a microsecond for 200
// parameters). After the failure, a fork of this process makes the same step in a dry run
// (hasten/anatomy/dry_run.h) and finds the allocation by its size, by the number of autograd nodes
// that existed, and by the number of gradients that were complete. Further dry runs with fewer rows
// find what would have fitted. Nothing of that changes this process.
//
// A GPU is simulated in the fork, where CUDA does not work. Without an explanation the error has
// LibTorch's text and a general hint: the step cannot run dry, it runs on a TPU or on another GPU
// than the first of the process, or the fork fails. On the CPU the limit is that of the address
// space (ulimit -v, RLIMIT_AS); a control group's limit kills a process instead. Thread rule: that
// of the step; one call at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "hasten/anatomy/anatomy.h"
#include "hasten/base/export.h"

namespace hasten {

// True for the errors of allocators: LibTorch's on any device, std::bad_alloc, and hasten's
// MemoryError.
HASTEN_API bool is_out_of_memory(const std::exception& error);

// A change of the step that takes less memory, such as another optimizer.
struct LeanerStep {
  std::string name;              // For the message: "with optim adafactor".
  std::function<void()> change;  // Called in a fork of this process.
};

struct ExplainedStep {
  // Makes the step with the first `rows` rows of the batch. Dry runs call it again.
  std::function<void(std::int64_t rows)> step;
  std::int64_t rows = 1;
  // The trained parameters, whose gradients tell how far a backward pass came.
  std::vector<at::Tensor> parameters;
  // Makes an Anatomy that knows the model and the optimizer.
  std::function<Anatomy(const AnatomyOptions&)> anatomy;
  std::vector<LeanerStep> leaner = {};  // Also tried with all rows.
};

// Runs the step. If memory runs out, throws MemoryError "anatomy.out-of-memory" with the
// explanation. Other errors pass through.
HASTEN_API void run_explained(const ExplainedStep& step);

}  // namespace hasten
