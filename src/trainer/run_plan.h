// File: trainer/run_plan.h (internal)
// The numbers of a run in optimizer steps: how many there are, and when something is due.
#pragma once

#include <cstdint>
#include <optional>

#include "base/saturated.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

struct Plan {
  std::int64_t batches_per_epoch, steps_per_epoch, max_steps, epochs;
  // Rows of the run in all processes, as the Hugging Face Trainer counts them.
  double samples;
  std::int64_t logging_steps, eval_steps, save_steps;
};

// Returns the number of ranks that share the rows of a step: virtual ranks if there are any.
inline std::int64_t data_ranks(const TrainingArguments& args, std::int64_t processes) {
  return args.elastic_ranks > 0 ? args.elastic_ranks : processes;
}

// Returns the number of rows of a batch of one of `ranks` ranks, if per_device_train_batch_size or
// per_device_eval_batch_size is `batch_size`. With split_batches the ranks share such a batch.
inline std::int64_t rows_of_rank(const TrainingArguments& args, std::int64_t batch_size,
                                 std::int64_t ranks) {
  return args.accelerator_config.flag("split_batches", false) ? batch_size / ranks : batch_size;
}
// Returns the number of rows of an optimizer step of `ranks` ranks.
inline std::int64_t rows_of_step(const TrainingArguments& args, std::int64_t ranks) {
  const std::int64_t batch =
      saturated_product(rows_of_rank(args, args.per_device_train_batch_size, ranks), ranks);
  return saturated_product(batch, args.gradient_accumulation_steps);
}

// `rows` and `batches` are the numbers in one epoch. `batches` is the number in each of `processes`
// processes or virtual ranks. Both are unset for a stream of unknown size. The run then makes
// max_steps steps, and takes the number of epochs that it needs for them. Throws ConfigError
// "trainer.max-steps" if max_steps is missing in this case. Numbers beyond 64 bits become the
// largest one, so that a run without an end has that many steps.
// Source: Trainer.set_initial_training_values of transformers 5.23.
Plan plan_of(const TrainingArguments& args, std::optional<std::int64_t> rows,
             std::optional<std::int64_t> batches, std::int64_t processes);

}  // namespace hasten
