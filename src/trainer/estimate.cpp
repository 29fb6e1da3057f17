#include "hasten/trainer/estimate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "anatomy/call_time.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/fitting_rows.h"
#include "data/column_names.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/generation.h"
#include "hasten/models/recomputation.h"
#include "machine/this_gpu.h"
#include "models/repeatable_model.h"
#include "options/training_rules.h"
#include "trainer/dynamic_sizes.h"
#include "trainer/estimate_workload.h"
#include "trainer/step_graphs.h"

namespace hasten {
namespace {

// True if the Trainer would use a graph for a run of such steps. The steps of an anatomy have no
// graph, because they are measured.
bool would_use_graph(const EstimateOptions& options, const torch::nn::Module& model,
                     const anatomy::Report& report) {
  const TrainingArguments& args = options.arguments;
  if (!options.dry || !report.memory.gpu || !args.cuda_graph.value_or(true)) return false;
  if (args.cuda_graph) return true;
  const anatomy::GpuMemory& gpu = *report.memory.gpu;
  return config::automatic_graph_conflict(args).what.empty() && unknown_class(model).empty() &&
         has_memory_for_graph(gpu.capacity, gpu.context + gpu.reserved, report.memory.peak);
}

template <class Model>
anatomy::Report run_training(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                             const EstimateBatches& batches) {
  const TemporaryDirectory scratch("hasten-estimate");
  anatomy::Report found;
  Trainer trainer(model, workload_arguments(options, scratch.path()),
                  {.train_dataset = TrainerDataset(batches.rows),
                   .compute_loss = batches.loss,
                   .log_sink = [](std::string_view) {},
                   .on_anatomy = [&](const anatomy::Report& report) { found = report; }});
  trainer.train();
  return found;
}

template <class Model>
anatomy::Report run_inference(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                              const EstimateBatches& batches) {
  Accelerator accelerator(accelerator_options_of(options));
  std::optional<Anatomy> anatomy;
  infer_workload(accelerator, options, model, batches, [&] {
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
                               const EstimateBatches& batches) {
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
      generate(*causal, batch.at(kInputIdsColumn), {}, generation_options_of(options, anatomy));
    }
    anatomy.step();
    if (anatomy.finished()) break;
  }
  return anatomy.report();
}

[[noreturn]] anatomy::Report run_generation(const EstimateOptions&,
                                            const std::shared_ptr<ExportedModule>&,
                                            const EstimateBatches&) {
  throw DataError("models.task", {.what = "an estimate of a generation",
                                  .got = "a .pt2 file, which has no cache of keys and values",
                                  .expected = "a model of type gpt2 or llama"});
}

// Changes the report of steps without a graph to a report of steps that a graph repeats. The host
// then starts all kernels with one call, and the graph has memory of its own.
void add_graph(const EstimateOptions& options, const EstimateWorkload& workload,
               anatomy::Report& report) {
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
  workload.visit([&](const auto& model, const EstimateBatches& batches) {
    train_workload(changed, model, batches);
  });
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
  const EstimateWorkload workload(options);
  std::optional<DryRun> dry;
  if (options.device == kThisGpu && !options.dry) {
    check_has_gpu();
  } else if (options.device != "cpu") {
    dry.emplace(find_gpu(options.device));
  } else if (options.dry) {
    dry.emplace();
  }
  bool repeats = false;
  anatomy::Report report = workload.visit([&](const auto& model, const EstimateBatches& batches) {
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
  return EstimateWorkload(options).visit([](const auto& model, const EstimateBatches&) {
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
  const std::int64_t max_rows = options.arguments.per_device_train_batch_size,
                     all = needed(max_rows);
  if (all <= limit) return {.rows = max_rows, .needed = all};
  const anatomy::FittingRows found = anatomy::find_fitting_rows(max_rows, limit, needed);
  if (found.rows > 0) return {.rows = found.rows, .needed = found.bytes};
  return {.rows = 0, .needed = max_rows == 1 ? all : found.too_many_bytes};
}

DynamicSizes dynamic_sizes(const EstimateOptions& options) {
  const auto parts = exported_parts(options);
  if (parts == nullptr) return {};
  const auto& inputs = parts->programs.front()->user_inputs;
  return {.rows = inputs.has_dynamic_rows(), .length = inputs.has_dynamic_length()};
}

}  // namespace hasten
