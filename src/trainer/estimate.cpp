#include "hasten/trainer/estimate.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/exported/exported_module.h"
#include "hasten/models/bert_config.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/train_options.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "hasten/tpu/machine/tpus.h"
#include "hasten/trainer/trainer.h"
#include "process/fork/fork_safety.h"
#include "process/fork/forked_rank.h"
#include "tpu/device/opened_tpu.h"
#include "trainer/exported_rows.h"

namespace hasten {
namespace {

// The rows of an estimate, and how their loss is computed if the model does not do that.
struct Batches {
  ColumnDataset rows;
  ComputeLoss loss = {};
  bool needs_labels = false;  // for inference, too
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

template <class Model>
anatomy::Report training(const EstimateOptions& options, const std::shared_ptr<Model>& model,
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

AcceleratorOptions accelerator_of(const EstimateOptions& options) {
  return {.mixed_precision = options.arguments.bf16 ? Precision::bf16 : Precision::no,
          .cpu = options.device == "cpu"};
}

template <class Model>
anatomy::Report inference(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                          const Batches& batches) {
  Accelerator accelerator(accelerator_of(options));
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

LoadedModel load(const EstimateOptions& options) {
  set_seed(options.arguments.seed);
  LoadedModel loaded =
      load_model(options.model, {.num_labels = options.num_labels,
                                 .hidden_dropout = options.hidden_dropout,
                                 .attention_dropout = options.attention_dropout,
                                 .classifier_dropout = options.classifier_dropout,
                                 .attn_implementation = options.attn_implementation,
                                 .ignore_mismatched_sizes = options.ignore_mismatched_sizes});
  if (options.length > loaded.model->max_length()) {
    throw UsageError(
        "models.sequence-too-long",
        {.what = "an estimate",
         .got = str(options.length, " tokens per row"),
         .expected = str("at most ", loaded.model->max_length(), " (max_position_embeddings)")});
  }
  return loaded;
}

// Returns the parts of the exported file; null for a model of load_model.
std::shared_ptr<const ExportedModule::Parts> exported_parts(const EstimateOptions& options) {
  if (!is_exported_model(options.model)) return nullptr;
  return std::make_shared<const ExportedModule::Parts>(
      options.model,
      ExportedOptions{.libraries = {options.libraries.begin(), options.libraries.end()}});
}

// The model of an estimate and its rows. The rows are made at once, because they are real also in a
// dry run: the size of an embedding's gradient depends on how many ids differ. The model is loaded
// by visit(), in the dry run.
class Subject {
 public:
  explicit Subject(const EstimateOptions& options)
      : options_(options), parts_(exported_parts(options)), batches_(make_batches()) {}

  // Calls f with the model and the batches.
  template <class F>
  auto visit(F f) const {
    if (parts_ == nullptr) return f(load(options_).model, batches_);
    set_seed(options_.arguments.seed);
    return f(std::make_shared<ExportedModule>(parts_), batches_);
  }

 private:
  Batches make_batches() const {
    const std::int64_t rows = rows_of(options_);
    if (parts_ == nullptr)
      return {.rows = dummy_rows(rows, options_.length, vocab_size_of(options_.model))};
    return {.rows = example_rows(*parts_, rows, options_.length),
            .loss = loss_for(*parts_),
            .needs_labels = find_input(*parts_, kLabelInput) != nullptr};
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
  Accelerator accelerator(accelerator_of(options));
  infer(accelerator, options, model, batches, [&] {
    return [&] {
      dry.step();
      return dry.steps() >= options.steps;
    };
  });
}

void throw_if_tpu_open() {
  if (!tpu_is_open()) return;
  throw UsageError("process.fork-after-tpu",
                   {.what = "what_if for a TPU",
                    .got = "a process that has opened one, whose forks cannot use it",
                    .hint = "call what_if before anything opens a TPU"});
}

const char* why_stopped(const anatomy::TpuAccount& account) {
  if (account.stopped.empty()) return "";
  return fits(account) ? "does not compile" : "does not fit";
}

// Runs in a forked process, because a process has only one account.
anatomy::Alternative alternative_for_tpu(const std::string& name, const EstimateOptions& options) {
  const TemporaryDirectory scratch("hasten-estimate");
  const auto needed = scratch.path() / "needed", stopped = scratch.path() / "stopped";
  const auto run = [&] {
    const anatomy::TpuAccount account = estimate_for_tpu(options);
    write_file_atomically(needed, str(account.peak.total()));
    write_file_atomically(stopped, why_stopped(account));
  };
  pause_openmp();
  ForkedRank process(run, {}, at::get_num_threads());
  process.wait_for_end();
  if (process.failed()) throw process.error(0);
  return {.name = name, .needed = std::stoll(read_file(needed)), .stopped = read_file(stopped)};
}

anatomy::Alternative alternative(const std::string& name, const EstimateOptions& options) {
  if (starts_with(options.device, kTpuDevice)) return alternative_for_tpu(name, options);
  return {.name = name, .needed = needed_bytes(estimate(options).memory)};
}

}  // namespace

anatomy::TpuAccount estimate_for_tpu(const EstimateOptions& options) {
  DryTpu dry(options.device.substr(kTpuDevice.size()));
  const Subject subject(options);
  std::string stopped;
  try {
    subject.visit([&](const auto& model, const Batches& batches) {
      options.mode == EstimateMode::inference ? infer_on(dry, options, model, batches)
                                              : train_on(options, model, batches);
    });
  } catch (const c10::Error& error) {
    // Keeps what the compiler reports. Other errors of the program go to the caller.
    if (dry.account().failed.empty()) throw;
    stopped = error.what_without_backtrace();
  }
  anatomy::TpuAccount account = dry.account();
  account.stopped = stopped;
  return account;
}

anatomy::Report estimate(const EstimateOptions& options) {
  const Subject subject(options);
  std::optional<DryRun> dry;
  if (options.device != "cpu") {
    dry.emplace(find_gpu(options.device));
  } else if (options.dry) {
    dry.emplace();
  }
  return subject.visit([&](const auto& model, const Batches& batches) {
    return options.mode == EstimateMode::inference ? inference(options, model, batches)
                                                   : training(options, model, batches);
  });
}

std::vector<anatomy::Alternative> what_if(const EstimateOptions& options,
                                          const std::function<void(const std::string&)>& on_begin) {
  if (starts_with(options.device, kTpuDevice)) throw_if_tpu_open();
  std::vector<anatomy::Alternative> out;
  const auto add = [&](const std::string& name, auto change) {
    EstimateOptions changed = options;
    changed.dry = true;
    change(changed);
    if (on_begin) on_begin(name);
    out.push_back(alternative(name, changed));
  };
  const TrainingArguments& args = options.arguments;
  add(args.bf16 ? "float instead of bf16" : "bf16",
      [](EstimateOptions& o) { o.arguments.bf16 = !o.arguments.bf16; });
  const bool trains = options.mode == EstimateMode::training;
  // The sizes that an export has fixed cannot change.
  const auto parts = exported_parts(options);
  const auto* const inputs = parts ? &parts->programs.front()->user : nullptr;
  if (const std::int64_t batch = args.per_device_train_batch_size;
      batch > 1 && (inputs == nullptr || inputs->has_dynamic_rows())) {
    add(str("batches of ", batch / 2, trains ? ", twice as many accumulated" : ""),
        [&](EstimateOptions& o) {
          o.arguments.per_device_train_batch_size = batch / 2;
          o.arguments.gradient_accumulation_steps *= 2;
        });
  }
  if (options.length > 1 && (inputs == nullptr || inputs->has_dynamic_length()))
    add(str("rows of ", options.length / 2, " tokens"), [](EstimateOptions& o) { o.length /= 2; });
  const bool is_adamw =
      args.optim == OptimizerName::adamw_torch || args.optim == OptimizerName::adamw_torch_fused;
  if (trains && args.optim != OptimizerName::sgd)
    add(str("SGD instead of ", is_adamw ? "AdamW" : name_of(args.optim)), [](EstimateOptions& o) {
      o.arguments.optim = OptimizerName::sgd;
      o.arguments.optim_args = {};
    });
  return out;
}

}  // namespace hasten
