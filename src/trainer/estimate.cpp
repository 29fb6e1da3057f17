#include "hasten/trainer/estimate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "anatomy/call_time.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/fitting_rows.h"
#include "data/padding.h"
#include "device/device.h"
#include "exported/exported_parts.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/exported/exported_module.h"
#include "hasten/models/detail/bert_config.h"
#include "hasten/models/generation.h"
#include "hasten/models/lora.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/models/recomputation.h"
#include "hasten/options/train_options.h"
#include "hasten/prepare/detail/convert_weights.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "hasten/trainer/trainer.h"
#include "machine/this_gpu.h"
#include "models/repeatable_model.h"
#include "options/training_rules.h"
#include "tpu/machine/tpus.h"
#include "trainer/dynamic_sizes.h"
#include "trainer/exported_rows.h"
#include "trainer/step_graphs.h"

namespace hasten {
namespace {

Task task_of(const EstimateOptions& options) {
  return options.task ? *options.task : default_task_of(options.model);
}

// The rows of an estimate, and how to compute their loss if the model does not do so.
struct Batches {
  ColumnDataset rows;
  LossFunction loss = {};
  bool needs_labels = false;  // also for inference
};

TrainingArguments arguments_of(const EstimateOptions& options,
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
  args.anatomy = "text";
  args.anatomy_steps = options.steps;
  return args;
}

std::int64_t rows_of(const EstimateOptions& options) {
  const TrainingArguments& args = options.arguments;
  return options.steps * args.per_device_train_batch_size * args.gradient_accumulation_steps *
         std::max<std::int64_t>(1, args.elastic_ranks);
}

// True if the Trainer would use a graph for a run of such steps. The steps of an anatomy have no
// graph, because they are measured.
bool would_use_graph(const EstimateOptions& options, const torch::nn::Module& model,
                     const anatomy::Report& report) {
  const TrainingArguments& args = options.arguments;
  if (!options.dry || !report.memory.gpu || !args.cuda_graph.value_or(true)) return false;
  if (args.cuda_graph) return true;
  const anatomy::GpuMemory& gpu = *report.memory.gpu;
  return config::graph_conflict(args).what.empty() && unknown_class(model).empty() &&
         has_memory_for_graph(gpu.capacity, gpu.context + gpu.reserved, report.memory.peak);
}

template <class Model>
anatomy::Report run_training(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                             const Batches& batches) {
  const TemporaryDirectory scratch("hasten-estimate");
  anatomy::Report found;
  Trainer trainer(model, arguments_of(options, scratch.path()),
                  {.train_dataset = TrainerDataset(batches.rows),
                   .compute_loss = batches.loss,
                   .log_sink = [](std::string_view) {},
                   .on_anatomy = [&](const anatomy::Report& report) { found = report; }});
  trainer.train();
  return found;
}

// Runs the model. `begin` returns a function that is called after each batch and
// returns true to stop.
template <class Model, class Begin>
void infer(Accelerator& accelerator, const EstimateOptions& options,
           const std::shared_ptr<Model>& module, const Batches& batches, Begin begin) {
  auto plain =
      make_loader(batches.rows, {.batch_size = options.arguments.per_device_train_batch_size});
  auto [model, loader] = accelerator.prepare(module, plain);
  module->eval();
  const torch::NoGradGuard no_grad;
  const auto after = begin();
  for (auto& batch : loader) {
    if (!batches.needs_labels) batch.erase(kLabelInput);
    model(batch);
    if (after()) return;
  }
}

AcceleratorOptions accelerator_options_of(const EstimateOptions& options) {
  const TrainingArguments& args = options.arguments;
  return {.mixed_precision = args.bf16   ? Precision::bf16
                             : args.fp16 ? Precision::fp16
                                         : Precision::no,
          .cpu = options.device == "cpu"};
}

template <class Model>
anatomy::Report run_inference(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                              const Batches& batches) {
  Accelerator accelerator(accelerator_options_of(options));
  std::optional<Anatomy> anatomy;
  infer(accelerator, options, model, batches, [&] {
    anatomy.emplace(accelerator.anatomy({.steps = options.steps}));
    return [&] {
      anatomy->step();
      return anatomy->finished();
    };
  });
  return anatomy->report();
}

GenerationOptions generation_options_of(const EstimateOptions& options, Anatomy& anatomy) {
  return {.max_new_tokens = options.new_tokens,
          .num_beams = options.beams,
          .on_memory = [&anatomy](const std::vector<at::Tensor>& memory) {
            anatomy.watch_functionality(memory);
          }};
}

// Generates once for each batch of prompts. No text ends before its last token.
anatomy::Report run_generation(const EstimateOptions& options,
                               const std::shared_ptr<PreTrainedModel>& module,
                               const Batches& batches) {
  auto* const causal = dynamic_cast<CausalModel*>(module.get());
  if (causal == nullptr) {
    throw DataError("models.task", {.what = "an estimate of a generation",
                                    .got = "a model that predicts no next token",
                                    .expected = "a model of type gpt2 or llama"});
  }
  Accelerator accelerator(accelerator_options_of(options));
  auto plain =
      make_loader(batches.rows, {.batch_size = options.arguments.per_device_train_batch_size});
  auto [model, loader] = accelerator.prepare(module, plain);
  module->eval();
  Anatomy anatomy = accelerator.anatomy({.steps = options.steps});
  for (auto& batch : loader) {
    {
      const auto phase = anatomy.forward();
      const auto autocast = accelerator.autocast();
      generate(*causal, batch.at("input_ids"), {}, generation_options_of(options, anatomy));
    }
    anatomy.step();
    if (anatomy.finished()) break;
  }
  return anatomy.report();
}

[[noreturn]] anatomy::Report run_generation(const EstimateOptions&,
                                            const std::shared_ptr<ExportedModule>&,
                                            const Batches&) {
  throw DataError("models.task", {.what = "an estimate of a generation",
                                  .got = "a .pt2 file, which has no cache of keys and values",
                                  .expected = "a model of type gpt2 or llama"});
}

LoadedModel load(const EstimateOptions& options) {
  set_seed(options.arguments.seed);
  LoadedModel loaded =
      load_model(options.model, {.task = task_of(options),
                                 .num_labels = options.num_labels,
                                 .hidden_dropout = options.hidden_dropout,
                                 .attention_dropout = options.attention_dropout,
                                 .classifier_dropout = options.classifier_dropout,
                                 .attn_implementation = options.attn_implementation,
                                 .ignore_mismatched_sizes = options.ignore_mismatched_sizes});
  const std::int64_t new_tokens = options.mode == EstimateMode::generation ? options.new_tokens : 0;
  if (options.length + new_tokens > loaded.model->max_length()) {
    throw UsageError(
        "models.sequence-too-long",
        {.what = "an estimate",
         .got = str(options.length + new_tokens, " tokens per row"),
         .expected = str("at most ", loaded.model->max_length(), " (max_position_embeddings)")});
  }
  return loaded;
}

// Returns the parts of the exported file, or null for a model of load_model.
std::shared_ptr<const ExportedModule::Parts> exported_parts(const EstimateOptions& options) {
  if (!is_exported_model(options.model)) return nullptr;
  return std::make_shared<const ExportedModule::Parts>(
      options.model,
      ExportedOptions{.libraries = {options.libraries.begin(), options.libraries.end()}});
}

// The model of an estimate and its rows. The constructor makes the rows, because they are real even
// in a dry run: the size of an embedding's gradient depends on the number of different ids. visit()
// loads the model, in the dry run.
class Workload {
 public:
  explicit Workload(const EstimateOptions& options)
      : options_(options), parts_(exported_parts(options)), batches_(make_batches()) {}

  // Calls f with the model and the batches.
  template <class F>
  auto visit(F f) const {
    if (parts_ == nullptr) return f(adapted(load(options_).model), batches_);
    set_seed(options_.arguments.seed);
    return f(adapted(std::make_shared<ExportedModule>(parts_)), batches_);
  }

 private:
  template <class Model>
  std::shared_ptr<Model> adapted(std::shared_ptr<Model> model) const {
    if (options_.arguments.weights_dtype == WeightsType::bfloat16 && parts_ == nullptr)
      convert_weights(*model, at::kBFloat16);
    if (options_.lora.r > 0) add_lora(*model, options_.lora);
    return model;
  }

  Batches make_batches() const {
    const std::int64_t rows = rows_of(options_);
    if (parts_ == nullptr) return {.rows = rows_of_ids(rows)};
    return {.rows = example_rows(*parts_, rows, options_.length),
            .loss = loss_for(*parts_),
            .needs_labels = find_input(*parts_, kLabelInput) != nullptr};
  }

  // A task of tokens has a label for each token. The labels of language models are the ids; every
  // seventh token is masked, which is near the usual 15 %.
  ColumnDataset rows_of_ids(std::int64_t rows) const {
    ColumnDataset out = dummy_rows(rows, options_.length, vocab_size_of(options_.model));
    const Task task = task_of(options_);
    TensorDict columns = out.columns();
    at::Tensor labels = columns.at("input_ids").clone();
    if (task == Task::token_classification) {
      labels.zero_();
    } else if (task == Task::masked_lm) {
      const at::Tensor place = at::arange(labels.size(1), at::kLong);
      labels.masked_fill_(place.remainder(7).ne(0), kIgnoredLabel);
    } else if (task != Task::causal_lm) {
      return out;
    }
    columns[kLabelInput] = labels;
    return ColumnDataset(std::move(columns));
  }

  EstimateOptions options_;
  std::shared_ptr<const ExportedModule::Parts> parts_;
  Batches batches_;
};

template <class Model>
void train_on(const EstimateOptions& options, const std::shared_ptr<Model>& model,
              const Batches& batches) {
  const TemporaryDirectory scratch("hasten-estimate");
  TrainingArguments args = arguments_of(options, scratch.path());
  args.anatomy.clear();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(batches.rows),
                   .compute_loss = batches.loss,
                   .log_sink = [](std::string_view) {}});
  trainer.train();
}

template <class Model>
void infer_on(DryTpu& dry, const EstimateOptions& options, const std::shared_ptr<Model>& model,
              const Batches& batches) {
  Accelerator accelerator(accelerator_options_of(options));
  infer(accelerator, options, model, batches, [&] {
    return [&] {
      dry.step();
      return dry.steps() >= options.steps;
    };
  });
}

}  // namespace

anatomy::TpuEstimate estimate_for_tpu(const EstimateOptions& options) {
  if (options.mode == EstimateMode::generation) {
    throw DataError(
        "models.task",
        {.what = "an estimate of a generation", .got = "a TPU", .expected = "the CPU or a GPU"});
  }
  DryTpu dry(options.device.substr(kTpuDevice.size()));
  const Workload workload(options);
  std::string stopped;
  try {
    workload.visit([&](const auto& model, const Batches& batches) {
      if (options.mode == EstimateMode::inference) {
        infer_on(dry, options, model, batches);
      } else {
        train_on(options, model, batches);
      }
    });
  } catch (const c10::Error& error) {
    // Keeps what the compiler reports. Other errors of the program go to the caller.
    if (dry.estimate().failed.empty()) throw;
    stopped = error.what_without_backtrace();
  }
  anatomy::TpuEstimate estimate = dry.estimate();
  estimate.stopped = stopped;
  return estimate;
}

namespace {

// Changes the report of steps without a graph to a report of steps that a graph repeats. The host
// then starts all kernels with one call, and the graph has memory of its own.
void add_graph(const EstimateOptions& options, const Workload& workload, anatomy::Report& report) {
  for (anatomy::Operation& each : report.operations) {
    const double kernels = std::exchange(each.host_seconds, 0) / anatomy::kHostCost;
    each.kernel_seconds -= kernels * anatomy::kStartSavedByGraph;
  }
  report.notes.push_back(
      "a CUDA graph starts the kernels of a step with one call (cuda_graph), so the time of the "
      "host is left out");
  const DryRun dry(find_gpu(options.device));
  EstimateOptions changed = options;
  changed.steps = kSteadySteps + 2;
  workload.visit(
      [&](const auto& model, const Batches& batches) { train_on(changed, model, batches); });
  const anatomy::CachingAllocator& memory = *anatomy::DryGpu::active()->memory();
  anatomy::GpuMemory& gpu = *report.memory.gpu;
  gpu.reserved = std::max(gpu.reserved, memory.peak_reserved());
  gpu.missing = std::max(gpu.missing, memory.missing());
}

void check_has_gpu() {
  if (device_of(at::Device(std::string(kThisGpu))).is_available()) return;
  throw ConfigError("config.unknown-device",
                    {.what = "a measurement on device cuda",
                     .got = "a machine or a LibTorch without a GPU",
                     .expected = "a GPU",
                     .hint = "measure on the CPU, or predict for a GPU by its name, such as "
                             "cuda:h200"});
}

}  // namespace

anatomy::Report estimate(const EstimateOptions& options) {
  const Workload workload(options);
  std::optional<DryRun> dry;
  if (options.device == kThisGpu && !options.dry) {
    check_has_gpu();
  } else if (options.device != "cpu") {
    dry.emplace(find_gpu(options.device));
  } else if (options.dry) {
    dry.emplace();
  }
  bool repeats = false;
  anatomy::Report report = workload.visit([&](const auto& model, const Batches& batches) {
    switch (options.mode) {
      case EstimateMode::training: {
        anatomy::Report found = run_training(options, model, batches);
        repeats = !batches.loss && would_use_graph(options, *model, found);
        return found;
      }
      case EstimateMode::inference:
        return run_inference(options, model, batches);
      case EstimateMode::generation:
        return run_generation(options, model, batches);
    }
    throw UsageError("models.unknown-task", {.what = "a mode that is not in the list"});
  });
  if (repeats) {
    dry.reset();
    add_graph(options, workload, report);
  }
  return report;
}

std::vector<std::string> recomputable_layers(const EstimateOptions& options) {
  const DryRun dry;
  return Workload(options).visit([](const auto& model, const Batches&) {
    std::vector<std::string> layers;
    try {
      layers = set_recomputation(*model, Recomputation{});
    } catch (const UsageError& error) {
      if (error.code() != "models.no-recomputation") throw;
    }
    return layers;
  });
}

FittingBatch largest_fitting_batch(const EstimateOptions& options, std::int64_t limit) {
  const auto needed = [&](std::int64_t rows) {
    EstimateOptions changed = options;
    changed.dry = true;
    changed.arguments.per_device_train_batch_size = rows;
    return needed_bytes(estimate(changed).memory);
  };
  const std::int64_t most = options.arguments.per_device_train_batch_size, all = needed(most);
  if (all <= limit) return {.rows = most, .needed = all};
  const anatomy::FittingRows found = anatomy::find_fitting_rows(most, limit, needed);
  if (found.rows > 0) return {.rows = found.rows, .needed = found.bytes};
  return {.rows = 0, .needed = most == 1 ? all : found.too_many_bytes};
}

DynamicSizes dynamic_sizes(const EstimateOptions& options) {
  const auto parts = exported_parts(options);
  if (parts == nullptr) return {};
  const auto& inputs = parts->programs.front()->user_inputs;
  return {.rows = inputs.has_dynamic_rows(), .length = inputs.has_dynamic_length()};
}

}  // namespace hasten
