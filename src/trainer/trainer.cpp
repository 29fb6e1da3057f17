#include "hasten/trainer/trainer.h"

#include <algorithm>
#include <iostream>
#include <typeinfo>
#include <utility>

#include "attach/attach.h"
#include "base/written_files.h"
#include "formats/model_files.h"
#include "hasten/anatomy/out_of_memory.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/device/memory.h"
#include "hasten/prepare/detail/convert_weights.h"
#include "hasten/process/once.h"
#include "hasten/trainer/tracking_callback.h"
#include "trainer/own_progress.h"
#include "trainer/saved_model.h"
#include "trainer/trainer_checks.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

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

DataLoaderConfiguration loader_configuration(const TrainingArguments& args,
                                             std::int64_t max_length) {
  const Kwargs& given = args.accelerator_config;
  DataLoaderConfiguration out{
      .split_batches = given.flag("split_batches", false),
      .static_shapes = {.labels = first_label_column(args), .max_length = max_length}};
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

// The Trainer logs few messages of its own, so they are shown unless log_level says otherwise.
LogLevel level_of(const TrainingArguments& args) {
  return args.log_level == LogLevel::passive ? LogLevel::info : args.log_level;
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
  if (args.eval_strategy != IntervalStrategy::no && !parts.eval_dataset) {
    logger.warning(str("eval_strategy is ", name_of(args.eval_strategy),
                       " but there is no evaluation data: training runs without evaluations. Pass "
                       "eval_dataset (--eval_data)"));
    args.eval_strategy = IntervalStrategy::no;
  }
  check_evaluations(args, parts);
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
