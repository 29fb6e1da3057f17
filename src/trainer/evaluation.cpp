#include "trainer/evaluation.h"

#include <exception>
#include <string>
#include <utility>

#include "anatomy/step_mark.h"
#include "device/memory_failure.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "hasten/models/training_traits.h"
#include "hasten/process/once.h"
#include "trainer/agreement.h"

namespace hasten {
namespace {

[[noreturn]] void throw_evaluation_out_of_memory(const std::exception& error,
                                                 const TrainingArguments& args) {
  throw_out_of_memory(
      "an evaluation batch", short_message(error),
      str("use a smaller per_device_eval_batch_size (", args.per_device_eval_batch_size,
          "), which changes no score; shorter rows (--max_length) help too"));
}

StepTotals sum_of(const std::vector<StepTotals>& totals) {
  StepTotals sum;
  for (const StepTotals& each : totals) {
    sum.loss += each.loss;
    sum.items += each.items;
  }
  return sum;
}

Precision precision_of_evaluations(const TrainingArguments& args, Precision of_training) {
  if (args.bf16_full_eval) return Precision::bf16;
  return args.fp16_full_eval ? Precision::fp16 : of_training;
}

bool is_packed(const AnyBatch& batch) {
  const TensorDict* const columns = batch.get_if<TensorDict>();
  return columns != nullptr && columns->contains(kPackedRows);
}

// Throws if an output of packed rows has entries for tokens, which would be taken for rows.
void check_entries_of_rows(EvalPrediction& outputs, const RealRows& real) {
  for_each_output(outputs, [&](const at::Tensor& output) {
    if (output.dim() == 0 || output.size(0) == real.rows) return;
    throw ConfigError(
        "trainer.padding-free",
        {.what = "an output of a batch without padding",
         .got = str("the shape ", shape_text(output.sizes()), " for ", real.rows, " rows"),
         .expected = "an entry for each row, as has_outputs_of_tokens() of the model says",
         .hint = "let has_outputs_of_tokens() return true, or leave out padding_free"});
  });
}

bool is_float_of_16_bits(const at::Tensor& output) {
  return output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf;
}

// Puts a module into evaluation mode, and back.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module)
      : module_(module), was_training_(module.is_training()) {
    module.eval();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() { module_.train(was_training_); }

 private:
  torch::nn::Module& module_;
  const bool was_training_;
};

}  // namespace

Trainer::Impl::Evaluation::Evaluation(Impl& trainer, const TrainerDataset& dataset,
                                      const Trainer::IgnoreKeys& ignored, Signal signal)
    : trainer_(trainer), dataset_(dataset), ignored_(ignored), signal_(std::move(signal)) {}

// A metric that sums counts gets only this process's rows; any other metric gets the rows of all
// processes. With elastic ranks, a metric gets each batch of all processes in the form that a
// single process would pass.
Trainer::Impl::Evaluation::Handlers Trainer::Impl::Evaluation::metric_handlers() const {
  EvalMetric* const metric =
      trainer_.args.prediction_loss_only ? nullptr : trainer_.parts.compute_metrics.get();
  if (metric == nullptr) return {};
  Handlers handlers;
  handlers.begin = [metric] { metric->reset(); };
  handlers.check = [](const EvalPrediction& batch) {
    if (has_labels(batch) && !has_outputs(batch)) throw_no_logits("compute_metrics");
  };
  handlers.use = [this, metric](const EvalPrediction& batch) {
    if (rows_with_labels(batch) > 0) trainer_.add_to_metric(*metric, batch);
  };
  if (trainer_.group().size() == 1) return handlers;
  const Accelerator& accelerator = trainer_.accelerator;
  if (trainer_.is_elastic()) {
    handlers.gather = [&accelerator](const EvalPrediction& batch) {
      return has_labels(batch) ? gather_predictions_by_rank(accelerator, batch)
                               : std::vector<EvalPrediction>();
    };
  } else if (metric->counts().empty()) {
    handlers.gather = [&accelerator](const EvalPrediction& batch) {
      return has_labels(batch) ? std::vector{gather_predictions(accelerator, batch)}
                               : std::vector<EvalPrediction>();
    };
  }
  return handlers;
}

std::optional<Trainer::Impl::Evaluation::Totals> Trainer::Impl::Evaluation::run(
    const Handlers& handlers) {
  trainer_.check_padding_free();
  auto loader = prepared_loader();
  trainer_.use_evaluated_weights();
  const EvaluationMode mode(*trainer_.model);
  const torch::NoGradGuard no_grad;
  losses_.clear();
  rows_ = labelled_rows_ = 0;
  agreement_.emplace(trainer_.group(), /*each_batch=*/static_cast<bool>(handlers.gather));
  try {
    if (run_batches(loader, handlers)) return std::nullopt;
  } catch (...) {
    agreement_->rethrow_in_all();
  }
  agreement_->finish();
  return totals();
}

PreparedLoader<Loader<AnyBatch>> Trainer::Impl::Evaluation::prepared_loader() const {
  std::optional<Loader<AnyBatch>> loader;
  once(trainer_.group(), true,
       [&] { loader.emplace(trainer_.trainer.get_eval_dataloader(dataset_)); });
  return std::get<0>(trainer_.accelerator.prepare(std::move(*loader)));
}

bool Trainer::Impl::Evaluation::run_batches(PreparedLoader<Loader<AnyBatch>>& loader,
                                            const Handlers& handlers) {
  const std::int64_t batches = loader->has_size() ? loader.size() : 0;
  attempt([&] {
    if (handlers.begin) handlers.begin();
    trainer_.for_each_callback(
        [&](TrainerCallback& each) { each.on_evaluate_begin(trainer_.event(), batches); });
  });
  bool ends = false;
  explain_memory([&] {
    for (const auto& [batch, info] : with_info(loader)) {
      ends = run_batch(batch, info, handlers);
      if (ends) return;
    }
  });
  return ends;
}

// The processes agree before they gather, because a process that has failed would not gather.
bool Trainer::Impl::Evaluation::run_batch(const AnyBatch& batch, const BatchInfo& info,
                                          const Handlers& handlers) {
  EvalPrediction own;
  attempt([&] {
    own = evaluate(batch, info, /*reads_outputs=*/static_cast<bool>(handlers.use));
    if (handlers.check) handlers.check(own);
  });
  if (handlers.gather && ends_after_batch()) return true;
  const auto all = handlers.gather ? handlers.gather(own) : std::vector<EvalPrediction>{own};
  attempt([&] {
    if (handlers.use) {
      for (const EvalPrediction& each : all) handlers.use(each);
    }
    trainer_.notify_callbacks(&TrainerCallback::on_prediction_step);
  });
  return !handlers.gather && ends_after_batch();
}

void Trainer::Impl::Evaluation::attempt(const std::function<void()>& work) {
  agreement_->attempt([&] { explain_memory(work); });
}

void Trainer::Impl::Evaluation::explain_memory(const std::function<void()>& work) const {
  try {
    work();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error) || dynamic_cast<const MemoryError*>(&error) != nullptr) throw;
    throw_evaluation_out_of_memory(error, trainer_.args);
  }
}

EvalPrediction Trainer::Impl::Evaluation::evaluate(const AnyBatch& host_batch,
                                                   const BatchInfo& info, bool reads_outputs) {
  const TrainingArguments& args = trainer_.args;
  RealRows real = real_rows(host_batch, info);
  AnyBatch batch = trainer_.to_device(
      trainer_.evaluates_unpadded_batches(reads_outputs) ? trainer_.unpadded_batch(real.batch)
                                                         : real.batch,
      rows_of_rank(args, args.per_device_eval_batch_size, trainer_.group().size()));
  const AutocastGuard guard(precision_of_evaluations(args, trainer_.accelerator.mixed_precision()),
                            trainer_.accelerator.device().type());
  const ModelOutput out = predict(batch, real);
  losses_.push_back(loss_of(out, real));
  rows_ += static_cast<double>(real.count);
  return reads_outputs ? real_outputs(out, real, batch) : EvalPrediction();
}

EvalPrediction Trainer::Impl::Evaluation::real_outputs(const ModelOutput& out, RealRows& real,
                                                       AnyBatch& given) {
  EvalPrediction found = outputs_of(out, ignored_);
  // On a device with static shapes, the batch on the device is padded with rows.
  trainer_.add_labels(trainer_.traits().needs_static_shapes ? real.batch : given, found);
  if (is_packed(given) && !is_packed(real.batch)) check_entries_of_rows(found, real);
  // Accelerate converts the outputs of a model that it has prepared for mixed precision. Outputs
  // that have 16 bits for another reason, such as bf16_full_eval or the weights, keep their type.
  const bool converts = trainer_.accelerator.mixed_precision() != Precision::no;
  for_each_output(found, [&](at::Tensor& output) {
    output = output.dim() == 0 ? output.expand({real.count})  // a number for the whole batch
                               : narrow_rows(trainer_.output_of(output, real.batch), real.count);
    if (converts && is_float_of_16_bits(output)) output = output.to(at::kFloat);
  });
  for_each_label(found, [&](at::Tensor& column) { column = narrow_rows(column, real.count); });
  labelled_rows_ += static_cast<double>(rows_with_labels(found));
  return found;
}

ModelOutput Trainer::Impl::Evaluation::predict(AnyBatch& batch, const RealRows& rows) const {
  try {
    return trainer_.trainer.prediction_step(batch);
  } catch (const std::exception& error) {
    trainer_.report_failed_rows("an evaluation or a prediction", rows, error);
    throw;
  }
}

// The labels are those of the batch of the loader, because a packed batch has one row of labels if
// each token has one.
StepTotals Trainer::Impl::Evaluation::loss_of(const ModelOutput& out, RealRows& real) const {
  const at::Tensor mean = out.loss;  // some models compute it without labels
  if (!mean.defined()) return {};
  trainer_.check_loss_shape(mean);
  // The mean over no labels is NaN, for example in a batch of short texts without a masked token.
  if (real.count == 0 || trainer_.count_items(real) == 0) return {};
  const at::Tensor labels = trainer_.labels_of(real.batch);
  const auto count =
      static_cast<double>(labels.defined() && labels.dim() > 0 ? labels.size(0) : real.count);
  return {.loss = mean.item<double>() * count, .items = count};
}

Trainer::Impl::Evaluation::Totals Trainer::Impl::Evaluation::totals() const {
  const Group& group = trainer_.group();
  const StepTotals all =
      trainer_.is_elastic() ? sum_of_batches(group, losses_) : sum_over(group, sum_of(losses_));
  Totals out{.batches = static_cast<double>(losses_.size()),
             .rows = rows_,
             .labelled_rows = labelled_rows_};
  if (all.items > 0) out.loss = all.loss / all.items;
  sum_in_place(group, {&out.rows, &out.labelled_rows});
  // A stream may have a different size in each process, or a different number of rows than it
  // reports.
  if (!dataset_.is_stream()) out.rows = static_cast<double>(dataset_.size());
  return out;
}

}  // namespace hasten
