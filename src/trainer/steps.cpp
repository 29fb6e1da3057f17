// The steps of a run that a class derived from Trainer may replace.
#include <optional>

#include "hasten/autograd/activation_offload.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/sampler.h"
#include "trainer/optimizer_builder.h"
#include "trainer/run_plan.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

// The rows of a stream come in its own order. `random`, the default, also means that order, as in
// the Hugging Face Trainer.
void check_order_of_stream(const TrainingArguments& args) {
  if (args.train_sampling_strategy != SamplingStrategy::group_by_length &&
      args.train_sampling_strategy != SamplingStrategy::batch_rebalance)
    return;
  throw ConfigError(
      "trainer.stream-order",
      {.what = str("train_sampling_strategy ", name_of(args.train_sampling_strategy)),
       .got = "training data that are a stream",
       .expected = "random or sequential, which leave a stream in its own order",
       .hint = "shuffle the stream with shuffle_rows (hasten/data/streams.h), or give "
               "the dataset size() and get(index)"});
}

// Checks that a dataset has rows, because the loader's own error would not name the dataset.
void check_has_rows(const TrainerDataset& data, const char* name) {
  if (data.is_stream() || data.size() > 0) return;
  throw DataError("data.empty", {.what = name, .got = "no rows", .expected = "at least one row"});
}

}  // namespace

ModelOutput Trainer::compute_loss(AnyBatch& batch) { return impl_->compute_loss(batch); }

at::Tensor Trainer::training_step(AnyBatch& batch, double items) {
  if (!impl_->prepared) {
    throw UsageError("trainer.no-run",
                     {.what = "training_step",
                      .got = "a call outside of train()",
                      .expected = "a call during train(), when the model is prepared",
                      .hint = "call it from a class that overrides it"});
  }
  const ModelOutput out = impl_->training_output(batch);
  impl_->accelerator.backward(out.loss, items);
  return out.loss;
}

ModelOutput Trainer::Impl::training_output(AnyBatch& batch) {
  const ModelOutput out = prepared->call([&](torch::nn::Module& module) {
    std::optional<ActivationOffload> offload;
    if (args.activation_offloading) offload.emplace(module);
    return trainer.compute_loss(batch);
  });
  check_loss(out.loss);
  return out;
}

ModelOutput Trainer::prediction_step(AnyBatch& batch) { return compute_loss(batch); }

std::unique_ptr<torch::optim::Optimizer> Trainer::create_optimizer() {
  return build_optimizer(impl_->args, *impl_->model, parameters_of(*impl_->model),
                         impl_->num_training_steps);
}

std::unique_ptr<LambdaLR> Trainer::create_scheduler(torch::optim::Optimizer& optimizer,
                                                    std::int64_t num_training_steps) {
  const TrainingArguments& args = impl_->args;
  return get_scheduler(args.lr_scheduler_type, optimizer,
                       {.num_warmup_steps = absolute_steps(args.warmup_steps, num_training_steps),
                        .num_training_steps = num_training_steps,
                        .kwargs = args.lr_scheduler_kwargs});
}

// If `mode` is unset, the direction of the metric follows from greater_is_better.
std::unique_ptr<MetricScheduler> Trainer::create_metric_scheduler(
    torch::optim::Optimizer& optimizer) {
  const TrainingArguments& args = impl_->args;
  Kwargs kwargs = args.lr_scheduler_kwargs;
  if (!kwargs.has("mode"))
    kwargs.set("mode", args.greater_is_better.value_or(false) ? "max" : "min");
  return get_metric_scheduler(args.lr_scheduler_type, optimizer, kwargs);
}

void Trainer::log(Metrics logs) {
  TrainerState& state = impl_->state;
  logs["epoch"] = state.epoch;
  if (impl_->args.include_num_input_tokens_seen != CountTokens::no)
    logs["num_input_tokens_seen"] = static_cast<double>(state.num_input_tokens_seen);
  LogEntry entry = logs;
  entry["step"] = static_cast<double>(state.global_step);
  state.log_history.push_back(std::move(entry));
  impl_->notify_callbacks(&TrainerCallback::on_log, logs);
}

Loader<AnyBatch> Trainer::get_train_dataloader() {
  const TrainingArguments& args = impl_->args;
  LoaderOptions options = impl_->loader_options(args.per_device_train_batch_size);
  if (args.padding_free) options.pin_memory = false;  // unpadded_batch() pins the packed rows
  options.drop_last = args.dataloader_drop_last;
  if (impl_->parts.train_dataset.is_stream()) {
    check_order_of_stream(args);
    return impl_->parts.train_dataset.loader(options);
  }
  check_has_rows(impl_->parts.train_dataset, "train_dataset");
  options.shuffle = args.train_sampling_strategy == SamplingStrategy::random ||
                    args.train_sampling_strategy == SamplingStrategy::batch_rebalance;
  if (args.train_sampling_strategy == SamplingStrategy::batch_rebalance) {
    options.rebalance =
        Rebalance{.lengths = impl_->parts.train_dataset.lengths(args.length_column_name),
                  .steps = args.gradient_accumulation_steps};
  }
  if (args.train_sampling_strategy == SamplingStrategy::group_by_length) {
    options.order =
        length_grouped_order(impl_->parts.train_dataset.lengths(args.length_column_name),
                             rows_of_step(args, impl_->data_ranks()));
  }
  return impl_->parts.train_dataset.loader(options);
}

Loader<AnyBatch> Trainer::get_eval_dataloader(const TrainerDataset& dataset) {
  check_has_rows(dataset, "the data of an evaluation or a prediction");
  return dataset.loader(impl_->loader_options(impl_->args.per_device_eval_batch_size));
}

}  // namespace hasten
