#include "hasten/trainer/estimate.h"

#include <ATen/Parallel.h>

#include <optional>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/models/bert_config.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "hasten/tpu/machine/tpus.h"
#include "hasten/trainer/trainer.h"
#include "process/fork/fork_safety.h"
#include "process/fork/forked_rank.h"
#include "tpu/device/opened_tpu.h"

namespace hasten {
namespace {

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

// Makes real rows: the size of an embedding's gradient depends on how many ids differ.
ColumnDataset rows_for(const EstimateOptions& options) {
  const TrainingArguments& args = options.arguments;
  const std::int64_t rows =
      options.steps * args.per_device_train_batch_size * args.gradient_accumulation_steps;
  return dummy_rows(rows, options.length, vocab_size_of(options.model));
}

anatomy::Report training(const EstimateOptions& options, const LoadedModel& loaded,
                         const ColumnDataset& rows) {
  const TemporaryDirectory scratch("hasten-estimate");
  anatomy::Report found;
  Trainer trainer(loaded.model, arguments_of(options, scratch.path()),
                  {.train_dataset = TrainerDataset(rows),
                   .log_sink = [](std::string_view) {},
                   .on_anatomy = [&](const anatomy::Report& report) { found = report; }});
  trainer.train();
  return found;
}

// Runs the model. `begin` returns a function that is called after each batch and
// returns true to stop.
template <class Begin>
void infer(Accelerator& accelerator, const EstimateOptions& options, const LoadedModel& loaded,
           const ColumnDataset& rows, Begin begin) {
  auto batches = make_loader(rows, {.batch_size = options.arguments.per_device_train_batch_size});
  auto [model, loader] = accelerator.prepare(loaded.model, batches);
  loaded.model->eval();
  const torch::NoGradGuard no_grad;
  const auto after = begin();
  for (auto& batch : loader) {
    batch.erase("labels");
    model(batch);
    if (after()) return;
  }
}

AcceleratorOptions accelerator_of(const EstimateOptions& options) {
  return {.mixed_precision = options.arguments.bf16 ? Precision::bf16 : Precision::no,
          .cpu = options.device == "cpu"};
}

anatomy::Report inference(const EstimateOptions& options, const LoadedModel& loaded,
                          const ColumnDataset& rows) {
  Accelerator accelerator(accelerator_of(options));
  std::optional<Anatomy> anatomy;
  infer(accelerator, options, loaded, rows, [&] {
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

void train_on(const EstimateOptions& options, const LoadedModel& loaded,
              const ColumnDataset& rows) {
  const TemporaryDirectory scratch("hasten-estimate");
  TrainingArguments args = arguments_of(options, scratch.path());
  args.anatomy.clear();
  Trainer trainer(loaded.model, args,
                  {.train_dataset = TrainerDataset(rows), .log_sink = [](std::string_view) {}});
  trainer.train();
}

void infer_on(DryTpu& dry, const EstimateOptions& options, const LoadedModel& loaded,
              const ColumnDataset& rows) {
  Accelerator accelerator(accelerator_of(options));
  infer(accelerator, options, loaded, rows, [&] {
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
  const ColumnDataset rows = rows_for(options);
  const LoadedModel loaded = load(options);
  std::string stopped;
  try {
    options.mode == EstimateMode::inference ? infer_on(dry, options, loaded, rows)
                                            : train_on(options, loaded, rows);
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
  const ColumnDataset rows = rows_for(options);
  std::optional<DryRun> dry;
  if (options.device != "cpu") {
    dry.emplace(find_gpu(options.device));
  } else if (options.dry) {
    dry.emplace();
  }
  const LoadedModel loaded = load(options);
  return options.mode == EstimateMode::inference ? inference(options, loaded, rows)
                                                 : training(options, loaded, rows);
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
  if (const std::int64_t batch = args.per_device_train_batch_size; batch > 1) {
    add(str("batches of ", batch / 2, trains ? ", twice as many accumulated" : ""),
        [&](EstimateOptions& o) {
          o.arguments.per_device_train_batch_size = batch / 2;
          o.arguments.gradient_accumulation_steps *= 2;
        });
  }
  if (options.length > 1)
    add(str("rows of ", options.length / 2, " tokens"), [](EstimateOptions& o) { o.length /= 2; });
  if (trains && args.optim != OptimizerName::sgd)
    add("SGD instead of AdamW", [](EstimateOptions& o) { o.arguments.optim = OptimizerName::sgd; });
  return out;
}

}  // namespace hasten
