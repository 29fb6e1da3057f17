#include "hasten/trainer/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "data/padding.h"
#include "formats/model_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/device/memory.h"
#include "hasten/process/once.h"
#include "hasten/trainer/tracking_callback.h"
#include "trainer/agreement.h"
#include "trainer/prediction_buffer.h"
#include "trainer/saved_model.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

DistributedDataParallelKwargs data_parallel_options(const TrainingArguments& args) {
  DistributedDataParallelKwargs out;
  out.bucket_cap_mb = args.ddp_bucket_cap_mb.value_or(out.bucket_cap_mb);
  out.broadcast_buffers = args.ddp_broadcast_buffers.value_or(out.broadcast_buffers);
  out.find_unused_parameters = args.ddp_find_unused_parameters.value_or(out.find_unused_parameters);
  out.static_graph = args.ddp_static_graph.value_or(out.static_graph);
  return out;
}

std::string label_column(const TrainingArguments& args) {
  return args.label_names.empty() ? "labels" : args.label_names.front();
}

AcceleratorOptions accelerator_options(const TrainingArguments& args,
                                       const std::shared_ptr<torch::nn::Module>& model) {
  const TrainingTraits* const traits = model ? traits_of(*model) : nullptr;
  const std::int64_t max_length = traits != nullptr ? traits->max_length() : 0;
  // Without --bf16, the environment of hasten launch decides.
  return {.mixed_precision = args.bf16 ? std::optional(Precision::bf16) : std::nullopt,
          .gradient_accumulation_steps = args.gradient_accumulation_steps,
          .cpu = args.use_cpu,
          .device_placement = false,  // labels are counted before batches leave the CPU
          .ddp = data_parallel_options(args),
          .dataloader_config = {.static_shapes = {.labels = label_column(args),
                                                  .max_length = max_length}},
          .process_group = {.timeout = std::chrono::seconds(args.ddp_timeout)},
          .elastic_ranks = args.elastic_ranks,
          .elastic_threads = std::max<std::int64_t>(1, args.num_threads)};
}

// The Trainer logs little of its own, so it is shown unless log_level says otherwise.
LogLevel level_of(const TrainingArguments& args) {
  return args.log_level == LogLevel::passive ? LogLevel::info : args.log_level;
}

[[noreturn]] void throw_no_logits(const std::string& what) {
  throw UsageError(
      "trainer.no-logits",
      {.what = what,
       .got = "a batch with a loss and no logits",
       .expected = "logits, which it is computed from",
       .hint = "return ModelOutput{.loss = loss, .logits = logits} from compute_loss"});
}

double rounded(double value, int decimals) {
  const double factor = std::pow(10.0, decimals);
  return std::round(value * factor) / factor;
}

// A dataset of another type than a function takes is an error before the first batch.
void check_batch_types(const TrainerParts& parts, const ComputeLoss& forward) {
  const ComputeLoss& loss = parts.compute_loss ? parts.compute_loss : forward;
  for (const std::type_info* const given :
       {parts.train_dataset.batch_type(), parts.eval_dataset.batch_type()}) {
    for (const std::type_info* const expected : {loss.batch_type(), parts.labels.batch_type()}) {
      if (given != nullptr && expected != nullptr && *given != *expected)
        detail::throw_batch_type(*given, *expected);
    }
  }
}

// Returns the rows of all processes, in rank order, with the second dimension padded to one length
// with -100. A collective.
at::Tensor gather_padded_rows(const Accelerator& accelerator, const at::Tensor& rows) {
  if (accelerator.group().size() == 1) return rows;
  return accelerator.gather_rows(accelerator.pad_across_processes(rows, 1, kIgnoredLabel));
}

StepTotals sum_of(const std::vector<StepTotals>& totals) {
  StepTotals sum;
  for (const StepTotals& each : totals) {
    sum.loss += each.loss;
    sum.items += each.items;
  }
  return sum;
}

// Adds the scores under the prefix. A name that has the prefix already stays as it is.
void add_scores(Metrics& metrics, const Metrics& scores, const std::string& prefix) {
  for (const auto& [name, value] : scores)
    metrics[starts_with(name, prefix + "_") ? name : prefix + "_" + name] = value;
}

}  // namespace

Metrics speed_metrics(const std::string& prefix, double seconds, double samples, double steps) {
  Metrics out = {{prefix + "_runtime", rounded(seconds, 4)}};
  if (seconds > 0) {
    out[prefix + "_samples_per_second"] = rounded(samples / seconds, 3);
    out[prefix + "_steps_per_second"] = rounded(steps / seconds, 3);
  }
  return out;
}

bool is_out_of_memory(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("can't allocate memory") != std::string::npos ||
         text.find("not enough memory") != std::string::npos;
}

void explain_out_of_memory(const std::string& text, const TrainingArguments& args,
                           const std::string& during) {
  throw MemoryError(
      "trainer.out-of-memory",
      {.what = "out of memory in " + during,
       .got = text.substr(0, text.find('\n')),
       .expected = "",
       .hint = str("halve per_device_train_batch_size (", args.per_device_train_batch_size,
                   ") and double gradient_accumulation_steps (", args.gradient_accumulation_steps,
                   ") for the same result in less memory; shorter rows (--max_length) help too")});
}

Trainer::Impl::Impl(Trainer& owner, std::shared_ptr<torch::nn::Module> module,
                    ComputeLoss own_forward, TrainingArguments arguments, TrainerParts given)
    : trainer(owner),
      model(std::move(module)),
      forward(std::move(own_forward)),
      args(resolved(std::move(arguments))),
      parts(std::move(given)),
      accelerator(accelerator_options(args, model)),
      memory(!args.skip_memory_metrics, accelerator.device()),
      logger("hasten", level_of(args), accelerator.process(), accelerator.group(), parts.log_sink) {
  if (!model) throw UsageError("trainer.no-model", {.what = "Trainer without a model"});
  memory.start(MemoryTracker::Stage::init);
  check_batch_types(parts, forward);
  if (args.label_smoothing_factor != 0 && parts.compute_loss) {
    throw ConfigError("trainer.label-smoothing",
                      {.what = "label_smoothing_factor",
                       .got = str(args.label_smoothing_factor, ", with compute_loss"),
                       .expected = "0, because compute_loss computes the loss",
                       .hint = "smooth the labels in compute_loss, for example with the option "
                               "label_smoothing of torch::nn::functional::cross_entropy"});
  }
  if (args.label_names.size() > 1) {
    throw UsageError("trainer.label-names",
                     {.what = "label_names",
                      .got = join(args.label_names, ", "),
                      .expected = "one name",
                      .hint = "several label columns are not supported yet"});
  }
  if (!args.average_tokens_across_devices && data_ranks() > 1) {
    throw ConfigError(
        "trainer.average-tokens",
        {.what = "average_tokens_across_devices",
         .got = str("false, with ", data_ranks(), is_elastic() ? " virtual ranks" : " processes"),
         .expected = "true, because a loss is the mean over the labels of all "
                     "processes",
         .hint = "leave out average_tokens_across_devices"});
  }
  if (args.eval_strategy != IntervalStrategy::no && !parts.eval_dataset) {
    logger.warning(str("eval_strategy is ", name_of(args.eval_strategy),
                       " but there is no evaluation data: training runs without evaluations. Pass "
                       "eval_dataset (--eval_data)"));
    args.eval_strategy = IntervalStrategy::no;
  }
  if (accelerator.mixed_precision() == Precision::bf16 && !bf16_is_fast(accelerator.device())) {
    logger.warning(
        "this CPU has neither AVX512-BF16 nor AMX: steps with bf16 take some 20 times as long as "
        "in float. Leave out --bf16");
  }
  if (args.num_threads > 0) at::set_num_threads(static_cast<int>(args.num_threads));
  if (args.full_determinism)
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Each process draws its own dropout masks, as each row of a larger batch does. With elastic ranks
  // the Accelerator does this.
  set_seed(args.seed + (is_elastic() ? 0 : accelerator.process().process_index));
  if (!expanded_tracker_names(args.report_to).empty()) {
    parts.callbacks.push_back(std::make_shared<TrackingCallback>());
  } else if (!args.run_name.empty()) {
    logger.warning("run_name " + args.run_name +
                   " is only saved in training_args.json: report_to names no tracker");
  }
  // Reads them now, because their folder may be gone at a later save.
  once(group(), writes(), [&] {
    for (const auto& file : parts.extra_files) extra_files[file.filename()] = read_file(file);
  });
  note_process(state);
  accelerator.to_device(*model);  // an evaluation may come without a training
  memory.stop(MemoryTracker::Stage::init);
}

bool Trainer::Impl::writes() const {
  return args.save_on_each_node ? accelerator.is_local_main_process()
                                : accelerator.is_main_process();
}

TrainerState Trainer::Impl::new_state() const {
  TrainerState fresh;
  note_process(fresh);
  return fresh;
}

void Trainer::Impl::note_process(TrainerState& of) const {
  of.is_world_process_zero = accelerator.is_main_process();
  of.is_local_process_zero = accelerator.is_local_main_process();
}

LoaderOptions Trainer::Impl::loader_options(std::int64_t batch_size) const {
  return {.batch_size = batch_size,
          .num_workers = args.dataloader_num_workers,
          .prefetch_factor = args.dataloader_prefetch_factor.value_or(2),
          .pin_memory = args.dataloader_pin_memory,
          .seed = static_cast<std::uint64_t>(args.data_seed.value_or(args.seed))};
}

at::Tensor Trainer::Impl::labels_of(TrainerBatch& batch) const {
  return parts.labels ? parts.labels(batch) : batch.labels(label_column(args));
}

double Trainer::Impl::count_items(RealRows& real) const {
  const at::Tensor labels = labels_of(real.batch);
  if (!labels.defined() || labels.dim() == 0) return static_cast<double>(real.count);
  if (labels.is_floating_point()) return static_cast<double>(labels.size(0));
  if (!labels.is_cpu())
    return static_cast<double>(labels.ne(kIgnoredLabel).sum().item<std::int64_t>());
  const at::Tensor all = labels.to(at::kLong).contiguous();
  const std::int64_t* label = all.const_data_ptr<std::int64_t>();
  return static_cast<double>(all.numel() - std::count(label, label + all.numel(), kIgnoredLabel));
}

ModelOutput Trainer::Impl::compute_loss(TrainerBatch& batch) const {
  const ComputeLoss& loss = parts.compute_loss ? parts.compute_loss : forward;
  if (!loss) {
    throw UsageError("trainer.no-compute-loss",
                     {.what = "a Trainer of " + c10::demangle(typeid(*model).name()),
                      .got = "a module whose forward() does not return a ModelOutput",
                      .expected = "a way to compute the loss of a batch",
                      .hint = "pass TrainerParts::compute_loss, as in "
                              ".compute_loss = [](Net& net, const Batch& batch) { ... }"});
  }
  ModelOutput out = loss(*model, batch);
  out.loss = smoothed_loss(out, batch);
  return out;
}

at::Tensor Trainer::Impl::smoothed_loss(const ModelOutput& out, TrainerBatch& batch) const {
  if (args.label_smoothing_factor == 0) return out.loss;
  const at::Tensor labels = labels_of(batch);
  if (!labels.defined() || labels.is_floating_point()) return out.loss;
  if (!out.logits.defined()) throw_no_logits("label_smoothing_factor");
  const std::int64_t classes = out.logits.size(-1);
  // (1 - e) * cross entropy + e * its mean over all classes, averaged over labels
  // that are not -100.
  const at::Tensor log_p = at::log_softmax(out.logits.to(at::kFloat).reshape({-1, classes}), -1),
                   flat = labels.reshape({-1});
  const at::Tensor counted = flat.ne(kIgnoredLabel);
  const at::Tensor hit = -log_p.gather(1, flat.clamp_min(0).unsqueeze(1)).squeeze(1),
                   spread = -log_p.mean(1);
  const at::Tensor each =
      hit * (1 - args.label_smoothing_factor) + spread * args.label_smoothing_factor;
  return each.masked_fill(counted.logical_not(), 0).sum() / counted.sum();
}

void Trainer::Impl::check_loss(const at::Tensor& loss) const {
  if (!loss.defined()) {
    const bool own = static_cast<bool>(parts.compute_loss);
    throw UsageError("trainer.no-loss",
                     {.what = "training",
                      .got = own ? "an undefined loss from compute_loss" : "a batch without labels",
                      .expected = own ? "a loss for each batch" : "labels",
                      .hint = own ? "" : "name the label column (--label_column)"});
  }
  if (loss.numel() != 1) {
    throw UsageError("trainer.loss-shape",
                     {.what = "the loss of a batch",
                      .got = str("a tensor of ", loss.numel(), " numbers"),
                      .expected = "one number, the mean over the rows or labels of the batch",
                      .hint = "end compute_loss with .mean(), or leave out reduction = kNone"});
  }
  if (!loss.requires_grad()) {
    throw UsageError("trainer.loss-without-gradient",
                     {.what = "the loss of a batch",
                      .got = "a tensor without a gradient",
                      .expected = "a loss that depends on a parameter that requires a gradient",
                      .hint = "compute it from the module's outputs, without detach(), item() or a "
                              "NoGradGuard"});
  }
}

TrainerBatch Trainer::Impl::to_device(const TrainerBatch& batch, std::int64_t rows) const {
  if (const TensorDict* const columns = batch.get_if<TensorDict>())
    return TrainerBatch(accelerator.to_device(*columns, rows));
  return accelerator.to_device(batch.copy());
}

at::Tensor Trainer::Impl::logits_of(const ModelOutput& out, const TrainerBatch& given) const {
  const TensorDict* const columns = given.get_if<TensorDict>();
  if (!traits().needs_static_shapes || columns == nullptr) return out.logits;
  const std::int64_t length = model_traits() != nullptr ? model_traits()->row_length(*columns) : 0;
  return without_padding(out.logits, rows_of(*columns), length);
}

std::optional<double> Trainer::Impl::evaluation_loop(
    const TrainerDataset& dataset,
    const std::function<void(const at::Tensor&, const at::Tensor&)>& each, const Stops& stops) {
  auto loader = std::get<0>(accelerator.prepare(trainer.get_eval_dataloader(dataset)));
  use_evaluated_weights();
  const bool was_training = model->is_training();
  model->eval();
  const torch::NoGradGuard no_grad;
  const Precision precision = args.bf16_full_eval ? Precision::bf16 : accelerator.mixed_precision();
  struct Restore {
    torch::nn::Module& model;
    bool training;
    ~Restore() { model.train(training); }
  } const restore{*model, was_training};
  std::vector<StepTotals> totals;  // of each batch
  for (const auto& callback : parts.callbacks) callback->on_evaluate_begin(event(), loader.size());
  try {
    for (const auto& [host_batch, info] : with_info(loader)) {
      RealRows real = real_rows(host_batch, info);
      TrainerBatch batch = to_device(real.batch, args.per_device_eval_batch_size);
      const AutocastGuard guard(precision, accelerator.device().type());
      const ModelOutput out = trainer.prediction_step(batch);
      const at::Tensor labels = labels_of(traits().needs_static_shapes ? real.batch : batch);
      const at::Tensor mean = out.loss;  // some models compute it without labels
      totals.emplace_back();
      // The mean over no labels is NaN, as in a batch of short texts without a masked token.
      if (mean.defined() && real.count > 0 && count_items(real) > 0) {
        const auto count =
            static_cast<double>(labels.defined() && labels.dim() > 0 ? labels.size(0) : real.count);
        totals.back() = {.loss = mean.item<double>() * count, .items = count};
      }
      each(counted(logits_of(out, real.batch), real.count), counted(labels, real.count));
      notify_callbacks(&TrainerCallback::on_prediction_step);
      if (stops()) break;
    }
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error))
      explain_out_of_memory(error.what_without_backtrace(), args, "an evaluation batch");
    throw;
  }
  const StepTotals all =
      is_elastic() ? sum_of_batches(group(), totals) : sum_over(group(), sum_of(totals));
  return all.items > 0 ? std::make_optional(all.loss / all.items) : std::nullopt;
}

// A metric whose counts are summed gets this process's rows; any other gets the rows of all. With
// elastic ranks a metric gets each batch of all processes, as one process would give it.
void Trainer::Impl::add_to_metric(const at::Tensor& logits, const at::Tensor& labels) const {
  EvalMetric& metric = *parts.compute_metrics;
  if (group().size() > 1 && is_elastic()) {
    const at::Tensor of_ranks = group().gather(at::scalar_tensor(logits.size(0), at::kLong)),
                     all_logits = gather_padded_rows(accelerator, logits),
                     all_labels = gather_padded_rows(accelerator, labels);
    std::int64_t first = 0;
    for (std::int64_t rank = 0; rank < group().size(); ++rank) {
      const auto rows = of_ranks[rank].item<std::int64_t>();
      if (rows > 0)
        metric.add(all_logits.narrow(0, first, rows), all_labels.narrow(0, first, rows));
      first += rows;
    }
    return;
  }
  if (group().size() > 1 && metric.counts().empty())
    return metric.add(gather_padded_rows(accelerator, logits),
                      gather_padded_rows(accelerator, labels));
  if (logits.size(0) > 0) metric.add(logits, labels);
}

Metrics Trainer::Impl::computed_metrics() const {
  EvalMetric& metric = *parts.compute_metrics;
  if (!is_elastic()) sum_in_place(group(), metric.counts());
  return metric.compute();
}

std::optional<Metrics> Trainer::Impl::evaluate(const TrainerDataset& dataset,
                                               const std::string& prefix, const Stops& stops) {
  if (!dataset)
    throw UsageError("trainer.no-eval-data",
                     {.what = "evaluate()",
                      .got = "no evaluation data",
                      .hint = "pass eval_dataset to the Trainer, or a dataset to evaluate()"});
  memory.start(MemoryTracker::Stage::eval);
  const auto start = Clock::now();
  if (parts.compute_metrics) parts.compute_metrics->reset();
  std::int64_t batches = 0;
  bool stopped = false;
  const std::optional<double> loss = evaluation_loop(
      dataset,
      [&](const at::Tensor& logits, const at::Tensor& labels) {
        ++batches;
        if (!parts.compute_metrics || !labels.defined() || args.prediction_loss_only) return;
        if (!logits.defined()) throw_no_logits("compute_metrics");
        add_to_metric(logits.detach(), labels);
      },
      [&] { return stopped = stops(); });
  if (stopped) return std::nullopt;
  Metrics metrics;
  if (loss) metrics[prefix + "_loss"] = *loss;
  if (parts.compute_metrics && !args.prediction_loss_only)
    add_scores(metrics, computed_metrics(), prefix);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.merge(speed_metrics(prefix, seconds, static_cast<double>(dataset.size()),
                              static_cast<double>(batches)));
  broadcast_metrics(group(), metrics);
  trainer.log(metrics);
  metrics["epoch"] = state.epoch;
  notify_callbacks(&TrainerCallback::on_evaluate, metrics);
  memory.stop(MemoryTracker::Stage::eval, metrics);
  return metrics;
}

void Trainer::Impl::write_model(const std::filesystem::path& folder) const {
  save_model_files(*model, folder);
  for (const auto& [name, bytes] : extra_files) write_file_atomically(folder / name, bytes);
  write_file_atomically(folder / "training_args.json", to_json(args));
}

Trainer::Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments,
                 TrainerParts parts)
    : Trainer(std::shared_ptr<torch::nn::Module>(std::move(model)),
              detail::forward_of<PreTrainedModel>(), std::move(arguments), std::move(parts)) {}
Trainer::Trainer(std::shared_ptr<torch::nn::Module> model, ComputeLoss forward,
                 TrainingArguments arguments, TrainerParts parts)
    : impl_(std::make_unique<Impl>(*this, std::move(model), std::move(forward),
                                   std::move(arguments), std::move(parts))) {}
Trainer::~Trainer() = default;

Metrics Trainer::evaluate(const std::string& prefix) {
  return impl_->evaluate(impl_->parts.eval_dataset, prefix, Impl::never).value();
}
Metrics Trainer::evaluate(const TrainerDataset& dataset, const std::string& prefix) {
  return impl_->evaluate(dataset, prefix, Impl::never).value();
}

PredictionOutput Trainer::predict(const TrainerDataset& dataset, const std::string& prefix) {
  if (!dataset)
    throw UsageError("trainer.no-eval-data",
                     {.what = "predict()", .got = "no data", .hint = "pass a dataset"});
  impl_->memory.start(MemoryTracker::Stage::test);
  const auto start = Clock::now();
  PredictionBuffer logits(impl_->args.eval_accumulation_steps),
      labels(impl_->args.eval_accumulation_steps);
  std::int64_t batches = 0;
  const std::optional<double> loss = impl_->evaluation_loop(
      dataset,
      [&](const at::Tensor& of_batch, const at::Tensor& wanted) {
        ++batches;
        if (impl_->args.prediction_loss_only) return;
        if (of_batch.defined()) logits.add(gather_padded_rows(impl_->accelerator, of_batch));
        if (wanted.defined()) labels.add(gather_padded_rows(impl_->accelerator, wanted));
      },
      Impl::never);
  PredictionOutput out{.predictions = concatenate_padded(logits.take()),
                       .label_ids = concatenate_padded(labels.take()),
                       .metrics = {}};
  if (loss) out.metrics[prefix + "_loss"] = *loss;
  if (impl_->parts.compute_metrics && out.label_ids.defined()) {
    if (!out.predictions.defined()) throw_no_logits("compute_metrics");
    impl_->parts.compute_metrics->reset();
    impl_->parts.compute_metrics->add(out.predictions, out.label_ids);
    add_scores(out.metrics, impl_->parts.compute_metrics->compute(), prefix);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  out.metrics.merge(speed_metrics(prefix, seconds, static_cast<double>(dataset.size()),
                                  static_cast<double>(batches)));
  broadcast_metrics(impl_->group(), out.metrics);
  impl_->notify_callbacks(&TrainerCallback::on_predict, out.metrics);
  impl_->memory.stop(MemoryTracker::Stage::test, out.metrics);
  return out;
}

void Trainer::save_model(const std::filesystem::path& folder) {
  const auto& target = folder.empty() ? std::filesystem::path(impl_->args.output_dir) : folder;
  impl_->use_evaluated_weights();
  once(impl_->group(), impl_->writes(), [&] {
    remove_unfinished_saves(target);
    const StagedDirectory staged(target / kStagedModel);
    impl_->write_model(staged.path());
    move_model_files(staged.path(), target);
  });
}
bool Trainer::has_saved_model(const std::filesystem::path& folder) const {
  const auto& target = folder.empty() ? std::filesystem::path(impl_->args.output_dir) : folder;
  return broadcast_from_main(impl_->group(), [&]() -> std::string {
           return has_weights(target) ? "yes" : "no";
         }) == "yes";
}
void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
  impl_->parts.callbacks.push_back(std::move(callback));
}
bool Trainer::is_world_process_zero() const { return impl_->accelerator.is_main_process(); }
bool Trainer::is_local_process_zero() const { return impl_->accelerator.is_local_main_process(); }
const TrainerState& Trainer::state() const { return impl_->state; }
const TrainingArguments& Trainer::args() const { return impl_->args; }
torch::nn::Module& Trainer::model() const { return *impl_->model; }
Accelerator& Trainer::accelerator() const { return impl_->accelerator; }

}  // namespace hasten
