#include "hasten/trainer/trainer.h"

#include <algorithm>
#include <iostream>
#include <typeinfo>
#include <utility>

#include "attach/attach.h"
#include "base/written_files.h"
#include "data/batch_error.h"
#include "data/padding.h"
#include "data/problem_type.h"
#include "device/memory_failure.h"
#include "formats/model_files.h"
#include "hasten/anatomy/out_of_memory.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/device/memory.h"
#include "hasten/exported/exported_module.h"
#include "hasten/models/pack_rows.h"
#include "hasten/prepare/detail/convert_weights.h"
#include "hasten/process/once.h"
#include "hasten/trainer/tracking_callback.h"
#include "models/losses.h"
#include "trainer/own_progress.h"
#include "trainer/saved_model.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

[[noreturn]] void throw_padding_free(const std::string& got, const std::string& expected) {
  throw ConfigError(
      "trainer.padding-free",
      {.what = "padding_free", .got = got, .expected = expected, .hint = "leave out padding_free"});
}

DistributedDataParallelKwargs data_parallel_options(const TrainingArguments& args) {
  DistributedDataParallelKwargs out;
  out.bucket_cap_mb = args.ddp_bucket_cap_mb.value_or(out.bucket_cap_mb);
  out.broadcast_buffers = args.ddp_broadcast_buffers.value_or(out.broadcast_buffers);
  out.find_unused_parameters = args.ddp_find_unused_parameters.value_or(out.find_unused_parameters);
  out.static_graph = args.ddp_static_graph.value_or(out.static_graph);
  return out;
}

// Returns the arguments, with the settings of a plan if the program runs under `hasten plan`.
TrainingArguments apply_plan(TrainingArguments arguments) {
  if (hasten_on_trainer_begin != nullptr) hasten_on_trainer_begin(arguments);
  return arguments;
}

std::string label_column(const TrainingArguments& args) {
  return args.label_names.empty() ? "labels" : args.label_names.front();
}

DataLoaderConfiguration loader_configuration(const TrainingArguments& args,
                                             std::int64_t max_length) {
  const Kwargs& given = args.accelerator_config;
  DataLoaderConfiguration out{
      .split_batches = given.flag("split_batches", false),
      .static_shapes = {.labels = label_column(args), .max_length = max_length}};
  if (given.has("dispatch_batches")) out.dispatch_batches = given.flag("dispatch_batches", false);
  return out;
}

// Without --bf16 or --fp16, the environment of hasten launch decides.
std::optional<Precision> precision_of(const TrainingArguments& args) {
  if (args.bf16) return Precision::bf16;
  return args.fp16 ? std::optional(Precision::fp16) : std::nullopt;
}

AcceleratorOptions accelerator_options(const TrainingArguments& args,
                                       const std::shared_ptr<torch::nn::Module>& model) {
  const TrainingTraits* const traits = model ? traits_of(*model) : nullptr;
  const std::int64_t max_length = traits != nullptr ? traits->max_length() : 0;
  return {.mixed_precision = precision_of(args),
          .gradient_accumulation_steps = args.gradient_accumulation_steps,
          .cpu = args.use_cpu,
          .device_placement = false,  // labels are counted before batches leave the CPU
          .ddp = data_parallel_options(args),
          .dataloader_config = loader_configuration(args, max_length),
          .process_group = {.timeout = std::chrono::seconds(args.ddp_timeout)},
          .elastic_ranks = args.elastic_ranks,
          .elastic_threads = std::max<std::int64_t>(1, args.num_threads),
          .step_in_backward = args.step_in_backward,
          .offload_optimizer_states = args.offload_optimizer_states};
}

// Throws if TF32 is requested on a device without it, because it would change nothing there.
void choose_tf32(bool is_on, at::Device device) {
  if (device_of(device).set_tf32(device.index(), is_on) || !is_on) return;
  throw ConfigError("trainer.tf32",
                    {.what = "tf32",
                     .got = str("true, on ", device.str()),
                     .expected = "a GPU of compute capability 8.0 (Ampere) or above",
                     .hint = "leave out tf32"});
}

// The operators of an exported program were chosen for the types that it was exported with.
void check_convertible(const torch::nn::Module& model) {
  if (dynamic_cast<const ExportedModule*>(&model) == nullptr) return;
  throw ConfigError(
      "trainer.weights-dtype",
      {.what = "weights_dtype bfloat16",
       .got = "an exported program, whose operators were exported for its own types",
       .expected = "a module in C++",
       .hint = "export the model in bfloat16, model.to(torch.bfloat16), and leave out "
               "weights_dtype: AdamW takes such weights as they are"});
}

// The Trainer logs few messages of its own, so they are shown unless log_level says otherwise.
LogLevel level_of(const TrainingArguments& args) {
  return args.log_level == LogLevel::passive ? LogLevel::info : args.log_level;
}

// Throws before the first batch if a dataset has a different type than a function takes.
void check_batch_types(const TrainerParts& parts, const LossFunction& forward) {
  const LossFunction& loss = parts.compute_loss ? parts.compute_loss : forward;
  for (const std::type_info* const given :
       {parts.train_dataset.batch_type(), parts.eval_dataset.batch_type()}) {
    for (const std::type_info* const expected : {loss.batch_type(), parts.labels.batch_type()}) {
      if (given != nullptr && expected != nullptr && *given != *expected)
        detail::throw_batch_type(*given, *expected);
    }
  }
}

// Throws for arguments that contradict how the loss is computed. `ranks` is the number of ranks
// that divide the data.
void check_losses(const TrainingArguments& args, const TrainerParts& parts, std::int64_t ranks) {
  if (args.label_smoothing_factor != 0 && parts.compute_loss) {
    throw ConfigError("trainer.label-smoothing",
                      {.what = "label_smoothing_factor",
                       .got = str(args.label_smoothing_factor, ", with compute_loss"),
                       .expected = "0, because compute_loss computes the loss",
                       .hint = "smooth the labels in compute_loss, for example with the option "
                               "label_smoothing of torch::nn::functional::cross_entropy"});
  }
  if (!args.average_tokens_across_devices && ranks > 1) {
    throw ConfigError("trainer.average-tokens",
                      {.what = "average_tokens_across_devices",
                       .got = str("false, with ", ranks,
                                  args.elastic_ranks > 0 ? " virtual ranks" : " processes"),
                       .expected = "true, because a loss is the mean over the labels of all "
                                   "processes",
                       .hint = "leave out average_tokens_across_devices"});
  }
}

// Throws if nothing can find the best checkpoint, because the run would then save none.
void check_best_checkpoint(const TrainingArguments& args, const TrainerParts& parts) {
  const bool saves_best = args.save_strategy == SaveStrategy::best;
  if (parts.eval_dataset || (!saves_best && !args.load_best_model_at_end)) return;
  throw UsageError("trainer.no-eval-data",
                   {.what = saves_best ? "save_strategy best" : "load_best_model_at_end",
                    .got = "no evaluation data",
                    .expected = "evaluations, which find the best checkpoint",
                    .hint = str("pass eval_dataset (--eval_data), or ",
                                saves_best ? "choose another save_strategy"
                                           : "leave out load_best_model_at_end")});
}

[[noreturn]] void throw_unsmoothable(const TrainingArguments& args, const std::string& got) {
  throw ConfigError("trainer.label-smoothing",
                    {.what = "label_smoothing_factor",
                     .got = str(args.label_smoothing_factor, ", with ", got),
                     .expected = "0, because smoothing is for labels that are one class each",
                     .hint = "leave out label_smoothing_factor"});
}

// Throws if the configuration of the model says that its labels cannot be smoothed. A model with
// outputs of tokens may be a language model, whose loss does not depend on the problem type.
void check_smoothed_model(const TrainingArguments& args, const torch::nn::Module& model) {
  const auto* const known = dynamic_cast<const PreTrainedModel*>(&model);
  if (args.label_smoothing_factor == 0 || known == nullptr || known->has_outputs_of_tokens())
    return;
  const std::string problem =
      problem_type_of(known->problem_type(), known->num_labels(), /*floating_labels=*/false);
  if (problem != kSingleLabel) throw_unsmoothable(args, "the problem type " + problem);
}

// Throws if the labels of a batch cannot be smoothed. Logits [rows, classes] are those of a model
// that classifies rows.
void check_smoothed_labels(const TrainingArguments& args, const torch::nn::Module& model,
                           const at::Tensor& labels, const at::Tensor& logits) {
  const auto* const known = dynamic_cast<const PreTrainedModel*>(&model);
  const bool is_configured = known != nullptr && logits.dim() == 2;
  const std::int64_t classes = logits.size(-1);
  const std::string problem = problem_type_of(is_configured ? known->problem_type() : "", classes,
                                              labels.is_floating_point());
  if (problem != kSingleLabel || labels.is_floating_point()) {
    throw_unsmoothable(args, str("labels of type ", c10::toString(labels.scalar_type()),
                                 " and the problem type ", problem));
  }
  if (labels.numel() * classes != logits.numel()) {
    throw_unsmoothable(args, str("labels of the shape ", shape_text(labels.sizes()),
                                 " and logits of the shape ", shape_text(logits.sizes())));
  }
}

void warn_of_slow_precision(const Accelerator& accelerator, const Logger& logger) {
  if (accelerator.mixed_precision() == Precision::bf16 && !bf16_is_fast(accelerator.device())) {
    logger.warning(
        "this CPU has neither AVX512-BF16 nor AMX: steps with bf16 take some 20 times as long as "
        "in float. Leave out --bf16");
  }
  if (accelerator.mixed_precision() == Precision::fp16 && !fp16_is_fast(accelerator.device())) {
    logger.warning(
        "this CPU has neither AVX512-FP16 nor AMX-FP16: steps with fp16 take several times as long "
        "as in float. Leave out --fp16, or use --bf16 if the CPU has AVX512-BF16 or AMX");
  }
}

// Applies the arguments that change settings of the process.
void apply_settings(const TrainingArguments& args, const Accelerator& accelerator) {
  if (args.tf32) choose_tf32(*args.tf32, accelerator.device());
  if (args.num_threads > 0) at::set_num_threads(static_cast<int>(args.num_threads));
  if (args.full_determinism)
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Each process draws its own dropout masks, as each row of a larger batch does. With elastic
  // ranks the Accelerator does this.
  set_seed(args.seed + (args.elastic_ranks > 0 ? 0 : accelerator.process().process_index));
}

}  // namespace

void throw_no_logits(const std::string& what) {
  throw UsageError(
      "trainer.no-logits",
      {.what = what,
       .got = "a batch with a loss and no logits",
       .expected = "logits, which it is computed from",
       .hint = "return ModelOutput{.loss = loss, .logits = logits} from compute_loss"});
}

void throw_out_of_memory(const std::string& during, const std::string& got,
                         const std::string& hint) {
  throw MemoryError(
      "trainer.out-of-memory",
      {.what = "out of memory in " + during, .got = got, .expected = "", .hint = hint});
}

void explain_out_of_memory(const std::string& text, const TrainingArguments& args,
                           const std::string& during, const anatomy::FailureText& why) {
  const std::int64_t rows = args.per_device_train_batch_size;
  const std::string smaller =
      rows > 1 ? str("halve per_device_train_batch_size (", rows,
                     ") and double gradient_accumulation_steps (", args.gradient_accumulation_steps,
                     ") for the same result in less memory")
               : "per_device_train_batch_size is 1 already: activation_checkpointing and optim "
                 "adamw_8bit take less memory";
  throw_out_of_memory(during, str(text, why.place.empty() ? "" : "; ", why.place),
                      str(why.fits, why.fits.empty() ? "" : "; ", smaller,
                          "; shorter rows (--max_length) help too, and hasten plan finds the "
                          "fastest settings that fit a limit"));
}

Trainer::Impl::Impl(Trainer& owner, std::shared_ptr<torch::nn::Module> module,
                    LossFunction own_forward, TrainingArguments arguments, TrainerParts given)
    : trainer(owner),
      model(std::move(module)),
      forward(std::move(own_forward)),
      args(resolved(apply_plan(std::move(arguments)))),
      parts(std::move(given)),
      accelerator(accelerator_options(args, model)),
      memory(!args.skip_memory_metrics, accelerator.device()),
      logger("hasten", level_of(args), accelerator.process(), accelerator.group(), parts.log_sink) {
  if (!model) throw UsageError("trainer.no-model", {.what = "Trainer without a model"});
  memory.start(MemoryTracker::Stage::init);
  check_batch_types(parts, forward);
  check_losses(args, parts, data_ranks());
  check_smoothed_model(args, *model);
  check_best_checkpoint(args, parts);
  if (args.eval_strategy != IntervalStrategy::no && !parts.eval_dataset) {
    logger.warning(str("eval_strategy is ", name_of(args.eval_strategy),
                       " but there is no evaluation data: training runs without evaluations. Pass "
                       "eval_dataset (--eval_data)"));
    args.eval_strategy = IntervalStrategy::no;
  }
  warn_of_slow_precision(accelerator, logger);
  apply_settings(args, accelerator);
  if (!expanded_tracker_names(args.report_to).empty()) {
    parts.callbacks.push_back(std::make_shared<TrackingCallback>());
  } else if (!args.run_name.empty()) {
    logger.warning("run_name " + args.run_name +
                   " is only saved in training_args.json: report_to names no tracker");
  }
  add_own_progress();
  // Reads them now, because their folder may be gone at a later save.
  once(group(), writes(), [&] {
    for (const auto& file : parts.extra_files) extra_files[file.filename()] = read_file(file);
  });
  set_process_flags(state);
  if (args.weights_dtype == WeightsType::bfloat16) {
    check_convertible(*model);
    convert_weights(*model, at::kBFloat16);
  }
  accelerator.to_device(*model);  // an evaluation may run without training
  memory.stop(MemoryTracker::Stage::init);
}

void Trainer::Impl::add_own_progress() {
  const auto& given = parts.callbacks;
  const bool is_shown = std::any_of(given.begin(), given.end(),
                                    [](const auto& each) { return each && shows_progress(*each); });
  own_progress = is_shown ? nullptr : progress_for(args);
  if (own_progress) parts.callbacks.push_back(own_progress);
}

void Trainer::Impl::add_callback(std::shared_ptr<TrainerCallback> callback) {
  if (own_progress && callback && shows_progress(*callback))
    std::erase(parts.callbacks, std::exchange(own_progress, nullptr));
  parts.callbacks.push_back(std::move(callback));
}

bool Trainer::Impl::writes() const {
  return args.save_on_each_node ? accelerator.is_local_main_process()
                                : accelerator.is_main_process();
}

TrainerState Trainer::Impl::new_state() const {
  TrainerState fresh;
  set_process_flags(fresh);
  return fresh;
}

void Trainer::Impl::set_process_flags(TrainerState& of) const {
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

at::Tensor Trainer::Impl::labels_of(AnyBatch& batch) const {
  return parts.labels ? parts.labels(batch) : batch.labels(label_column(args));
}

bool Trainer::Impl::shifts_labels(const at::Tensor& labels) const {
  return model_traits() != nullptr && model_traits()->shifts_labels() && labels.dim() > 1 &&
         labels.size(-1) > 0;
}

double Trainer::Impl::count_items(RealRows& real) const {
  const at::Tensor labels = labels_of(real.batch);
  if (!labels.defined() || labels.dim() == 0) return static_cast<double>(real.count);
  if (labels.is_floating_point()) return static_cast<double>(labels.size(0));
  const at::Tensor used =
      shifts_labels(labels) ? labels.narrow(-1, 1, labels.size(-1) - 1) : labels;
  if (!used.is_cpu()) return static_cast<double>(used.ne(kIgnoredLabel).sum().item<std::int64_t>());
  const at::Tensor all = used.to(at::kLong).contiguous();
  const std::int64_t* label = all.const_data_ptr<std::int64_t>();
  return static_cast<double>(all.numel() - std::count(label, label + all.numel(), kIgnoredLabel));
}

// A model that does not know where the texts of a packed row begin would let them attend to each
// other.
void Trainer::Impl::check_packed_batch(AnyBatch& batch) const {
  const auto* const tensors = batch.get_if<TensorDict>();
  if (tensors == nullptr || !tensors->contains(kPackedRows)) return;
  const TrainingTraits* const traits = model_traits();
  if (traits != nullptr && traits->supports_packed_batches()) return;
  throw ConfigError(
      "trainer.packed-batch",
      {.what = "a packed batch, with " + std::string(kPackedRows),
       .got = c10::demangle(typeid(*model).name()) + ", which does not take such batches",
       .expected = "a model of hasten for texts, or one that overrides "
                   "TrainingTraits::supports_packed_batches",
       .hint = "use DataCollatorWithPadding, or compute the loss in compute_loss"});
}

void Trainer::Impl::report_failed_rows(const std::string& part, const RealRows& rows,
                                       const std::exception& error) const {
  if (dynamic_cast<const Error*>(&error) != nullptr || is_out_of_memory(error)) return;
  const std::string where =
      rows.first_rows.empty()
          ? ""
          : " on " + detail::list_of_rows(rows.first_rows, std::max<std::int64_t>(rows.count, 1));
  logger.error(str(part, " failed", where, ": ", short_message(error)),
               {.main_process_only = group().size() == 1});
}

ModelOutput Trainer::Impl::compute_loss(AnyBatch& batch) const {
  const LossFunction& loss = parts.compute_loss ? parts.compute_loss : forward;
  if (!loss) {
    throw UsageError("trainer.no-compute-loss",
                     {.what = "a Trainer of " + c10::demangle(typeid(*model).name()),
                      .got = "a module whose forward() does not return a ModelOutput",
                      .expected = "a way to compute the loss of a batch",
                      .hint = "pass TrainerParts::compute_loss, as in "
                              ".compute_loss = [](Net& net, const Batch& batch) { ... }"});
  }
  if (!parts.compute_loss) check_packed_batch(batch);
  ModelOutput out = loss(*model, batch);
  out.loss = smoothed_loss(out, batch);
  return out;
}

at::Tensor Trainer::Impl::smoothed_loss(const ModelOutput& out, AnyBatch& batch) const {
  if (args.label_smoothing_factor == 0) return out.loss;
  at::Tensor labels = labels_of(batch);
  if (!labels.defined()) return out.loss;
  if (!out.logits.defined()) throw_no_logits("label_smoothing_factor");
  check_smoothed_labels(args, *model, labels, out.logits);
  if (shifts_labels(labels)) labels = shifted_labels(labels);
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
  check_loss_shape(loss);
  if (!loss.requires_grad()) {
    throw UsageError("trainer.loss-without-gradient",
                     {.what = "the loss of a batch",
                      .got = "a tensor without a gradient",
                      .expected = "a loss that depends on a parameter that requires a gradient",
                      .hint = "compute it from the module's outputs, without detach(), item() or a "
                              "NoGradGuard"});
  }
}

void Trainer::Impl::check_loss_shape(const at::Tensor& loss) const {
  if (loss.numel() != 1) {
    throw UsageError("trainer.loss-shape",
                     {.what = "the loss of a batch",
                      .got = str("a tensor of ", loss.numel(), " numbers"),
                      .expected = "one number, the mean over the rows or labels of the batch",
                      .hint = "end compute_loss with .mean(), or leave out reduction = kNone"});
  }
  if (loss.is_complex()) {
    throw UsageError("trainer.loss-shape",
                     {.what = "the loss of a batch",
                      .got = str("a number of type ", c10::toString(loss.scalar_type())),
                      .expected = "a real number",
                      .hint = "end compute_loss with at::real() or .abs()"});
  }
}

void Trainer::Impl::check_padding_free() const {
  if (!args.padding_free) return;
  if (traits().needs_static_shapes) {
    throw_padding_free(str("device ", accelerator.device().str(),
                           ", which compiles a program for each number of tokens"),
                       "a device that does not, such as a GPU");
  }
  const TrainingTraits* const of_model = model_traits();
  if (of_model == nullptr || !of_model->supports_packed_batches()) {
    throw_padding_free(
        c10::demangle(typeid(*model).name()) + ", which does not take several texts in one row",
        "a model of hasten for texts, or one that overrides "
        "TrainingTraits::supports_packed_batches");
  }
  const std::type_info* const batches = parts.train_dataset.batch_type();
  if (batches != nullptr && *batches != typeid(TensorDict))
    throw_padding_free("batches of the type " + c10::demangle(batches->name()),
                       "batches of TensorDict");
}

// compute_loss and classes that derive from Trainer may read outputs with an entry for each token
// of the padded rows.
bool Trainer::Impl::evaluates_unpadded_batches(bool reads_outputs) const {
  if (!args.padding_free || parts.compute_loss || typeid(trainer) != typeid(Trainer)) return false;
  return !reads_outputs || !model_traits()->has_outputs_of_tokens();
}

// The batch of the loader keeps its padding, because tokens and floating-point operations are
// counted with it. A copy from pinned memory does not block the host.
AnyBatch Trainer::Impl::unpadded_batch(const AnyBatch& batch) const {
  const TensorDict* const columns = batch.get_if<TensorDict>();
  if (!args.padding_free || columns == nullptr) return batch;
  const TrainingTraits* const of_model = model_traits();
  TensorDict packed = pack_rows(*columns, of_model != nullptr && of_model->shifts_labels());
  if (args.dataloader_pin_memory && traits().copies_from_pinned_memory) pin(packed);
  return AnyBatch(std::move(packed));
}

// In a dry run a pinned copy has no content, and the model reads the lengths of packed rows.
void Trainer::Impl::pin(TensorDict& batch) const {
  const auto bounds = batch.find(kPackedRows);
  if (bounds != batch.end()) batch.emplace(kPackedRowsOnHost, bounds->second);
  for (auto& [name, tensor] : batch) {
    if (name != kPackedRowsOnHost) tensor = detail::pinned(tensor);
  }
}

AnyBatch Trainer::Impl::to_device(const AnyBatch& batch, std::int64_t rows) const {
  if (const TensorDict* const columns = batch.get_if<TensorDict>())
    return AnyBatch(accelerator.to_device(*columns, rows));
  return accelerator.to_device(batch.copy());
}

at::Tensor Trainer::Impl::output_of(const at::Tensor& output, const AnyBatch& given) const {
  const TensorDict* const columns = given.get_if<TensorDict>();
  if (!traits().needs_static_shapes || columns == nullptr) return output;
  const std::int64_t length = model_traits() != nullptr ? model_traits()->row_length(*columns) : 0;
  return without_padding(output, rows_of(*columns), length);
}

void Trainer::Impl::add_labels(AnyBatch& batch, EvalPrediction& to) const {
  if (args.label_names.size() < 2 || parts.labels || batch.get_if<TensorDict>() == nullptr) {
    to.label_ids = labels_of(batch);
    return;
  }
  for (const std::string& name : args.label_names) {
    const at::Tensor column = batch.labels(name);
    if (!column.defined()) return to.labels.clear();
    to.labels[name] = column;
  }
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
Trainer::Trainer(std::shared_ptr<torch::nn::Module> model, LossFunction forward,
                 TrainingArguments arguments, TrainerParts parts)
    : impl_(std::make_unique<Impl>(*this, std::move(model), std::move(forward),
                                   std::move(arguments), std::move(parts))) {}
Trainer::~Trainer() = default;

void Trainer::save_model(const std::filesystem::path& folder) {
  const auto& target = folder.empty() ? std::filesystem::path(impl_->args.output_dir) : folder;
  impl_->use_evaluated_weights();
  once(impl_->group(), impl_->writes(), [&] {
    remove_unfinished_saves(target);
    const StagedDirectory staged(target / kStagedModel);
    record_written_files(staged.path());
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
  impl_->add_callback(std::move(callback));
}
bool Trainer::remove_callback(const std::shared_ptr<TrainerCallback>& callback) {
  auto& all = impl_->parts.callbacks;
  const auto found = std::find(all.begin(), all.end(), callback);
  if (found == all.end()) return false;
  all.erase(found);
  return true;
}
bool Trainer::is_world_process_zero() const { return impl_->accelerator.is_main_process(); }
bool Trainer::is_local_process_zero() const { return impl_->accelerator.is_local_main_process(); }
const TrainerState& Trainer::state() const { return impl_->state; }
const TrainingArguments& Trainer::args() const { return impl_->args; }
torch::nn::Module& Trainer::model() const { return *impl_->model; }
Accelerator& Trainer::accelerator() const { return impl_->accelerator; }

}  // namespace hasten
