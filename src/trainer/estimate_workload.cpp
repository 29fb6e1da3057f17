#include "trainer/estimate_workload.h"

#include <algorithm>
#include <utility>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/detail/bert_config.h"
#include "hasten/options/train_options.h"
#include "trainer/exported_rows.h"

namespace hasten {
namespace {

Task task_of(const EstimateOptions& options) {
  return options.task ? *options.task : default_task_of(options.model);
}

std::int64_t rows_of(const EstimateOptions& options) {
  const TrainingArguments& args = options.arguments;
  return options.steps * args.per_device_train_batch_size * args.gradient_accumulation_steps *
         std::max<std::int64_t>(1, args.elastic_ranks);
}

}  // namespace

TrainingArguments workload_arguments(const EstimateOptions& options,
                                     const std::filesystem::path& scratch) {
  TrainingArguments args = options.arguments;
  args.output_dir = scratch.string();
  args.resume_from_checkpoint.clear();
  args.max_steps = options.steps;
  args.logging_strategy = IntervalStrategy::no;
  args.eval_strategy = IntervalStrategy::no;
  args.save_strategy = SaveStrategy::no;
  args.load_best_model_at_end = false;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  args.use_cpu = options.device == "cpu";
  args.disable_tqdm = true;
  args.anatomy = "text";
  args.anatomy_steps = options.steps;
  return args;
}

AcceleratorOptions accelerator_options_of(const EstimateOptions& options) {
  const TrainingArguments& args = options.arguments;
  return {.mixed_precision = args.bf16   ? Precision::bf16
                             : args.fp16 ? Precision::fp16
                                         : Precision::no,
          .cpu = options.device == "cpu"};
}

std::shared_ptr<const ExportedModule::Parts> exported_parts(const EstimateOptions& options) {
  if (!is_exported_model(options.model)) return nullptr;
  return std::make_shared<const ExportedModule::Parts>(
      options.model,
      ExportedOptions{.libraries = {options.libraries.begin(), options.libraries.end()}});
}

LoadedModel EstimateWorkload::load() const {
  set_seed(options_.arguments.seed);
  LoadedModel loaded =
      load_model(options_.model, {.task = task_of(options_),
                                  .num_labels = options_.num_labels,
                                  .hidden_dropout = options_.hidden_dropout,
                                  .attention_dropout = options_.attention_dropout,
                                  .classifier_dropout = options_.classifier_dropout,
                                  .attn_implementation = options_.attn_implementation,
                                  .ignore_mismatched_sizes = options_.ignore_mismatched_sizes});
  const std::int64_t new_tokens =
      options_.mode == EstimateMode::generation ? options_.new_tokens : 0;
  if (options_.length + new_tokens > loaded.model->max_length()) {
    throw UsageError(
        "models.sequence-too-long",
        {.what = "an estimate",
         .got = str(options_.length + new_tokens, " tokens per row"),
         .expected = str("at most ", loaded.model->max_length(), " (max_position_embeddings)")});
  }
  return loaded;
}

EstimateBatches EstimateWorkload::make_batches() const {
  const std::int64_t rows = rows_of(options_);
  if (parts_ == nullptr) return {.rows = rows_of_ids(rows)};
  return {.rows = example_rows(*parts_, rows, options_.length),
          .loss = loss_for(*parts_),
          .needs_labels = find_input(*parts_, kLabelsColumn) != nullptr};
}

// A task of tokens has a label for each token. The labels of language models are the ids; every
// seventh token is masked, which is near the usual 15 %. Rows are packed by their mask, which
// admits all tokens here.
ColumnDataset EstimateWorkload::rows_of_ids(std::int64_t rows) const {
  const Task task = task_of(options_);
  TensorDict columns = dummy_rows(rows, options_.length, vocab_size_of(options_.model)).columns();
  if (options_.arguments.padding_free)
    columns["attention_mask"] = at::ones_like(columns.at(kInputIdsColumn));
  at::Tensor labels = columns.at(kInputIdsColumn).clone();
  if (task == Task::token_classification) {
    labels.zero_();
  } else if (task == Task::masked_lm) {
    const at::Tensor place = at::arange(labels.size(1), at::kLong);
    labels.masked_fill_(place.remainder(7).ne(0), kIgnoredLabel);
  } else if (task != Task::causal_lm) {
    return ColumnDataset(std::move(columns));
  }
  columns[kLabelsColumn] = labels;
  return ColumnDataset(std::move(columns));
}

}  // namespace hasten
