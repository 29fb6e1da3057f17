#include "to_estimate_options.h"

namespace hasten::cli {
namespace {

Task task_of(TrainTask task) {
  switch (task) {
    case TrainTask::text_classification:
      return Task::text_classification;
    case TrainTask::token_classification:
      return Task::token_classification;
    case TrainTask::masked_lm:
      return Task::masked_lm;
    case TrainTask::causal_lm:
      return Task::causal_lm;
    case TrainTask::image_classification:
      return Task::image_classification;
  }
  return Task::base;
}

// Returns the task if a source names one; otherwise the model decides.
std::optional<Task> requested_task(const TrainConfiguration& train) {
  using Source = config::Origin::Source;
  for (const config::ResolvedValue& each : train.values) {
    if (each.name == "task" && each.origin.source != Source::default_value)
      return task_of(train.options.task);
  }
  return std::nullopt;
}

}  // namespace

EstimateOptions to_estimate_options(const EstimateConfiguration& run) {
  const TrainOptions& options = run.train.options;
  return {.model = options.model,
          .task = requested_task(run.train),
          .num_labels = options.num_labels.value_or(0),
          .hidden_dropout = options.hidden_dropout,
          .attention_dropout = options.attention_dropout,
          .classifier_dropout = options.classifier_dropout,
          .ignore_mismatched_sizes = options.ignore_mismatched_sizes,
          .attn_implementation = options.attn_implementation,
          .length = options.dummy_length,
          .mode = run.mode,
          .steps = run.steps,
          .new_tokens = run.new_tokens,
          .beams = run.beams,
          .arguments = run.train.arguments,
          .libraries = options.library,
          .lora = lora_options_of(options),
          .dry = !run.measure,
          .device = run.device};
}

}  // namespace hasten::cli
