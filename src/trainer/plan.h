// File: trainer/plan.h (internal)
// The numbers of a run in optimizer steps: how many there are, and when something is due.
#pragma once

#include <cstdint>

#include "hasten/options/training_arguments.h"

namespace hasten {

struct Plan {
  std::int64_t batches_per_epoch, steps_per_epoch, max_steps, epochs;
  // Rows of the run in all processes, as the Hugging Face Trainer counts them.
  double samples;
  std::int64_t logging_steps, eval_steps, save_steps;
};

// The ranks that share the rows of a step: virtual ones if there are any.
inline std::int64_t data_ranks(const TrainingArguments& args, std::int64_t processes) {
  return args.elastic_ranks > 0 ? args.elastic_ranks : processes;
}

// `batches` is the number in one epoch, in each of `processes` processes or virtual ranks.
Plan plan_of(const TrainingArguments& args, std::int64_t rows, std::int64_t batches,
             std::int64_t processes);

}  // namespace hasten
