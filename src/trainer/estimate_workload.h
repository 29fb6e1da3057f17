// File: trainer/estimate_workload.h (internal)
// The model of an estimate, its rows, and the loops that run them. The estimates for the CPU and
// for a GPU (trainer/estimate.cpp) use it, and so does the estimate for a TPU.
//
//   const EstimateWorkload workload(options);            // before the dry run
//   const DryRun dry;
//   workload.visit([&](const auto& model, const EstimateBatches& batches) {
//     train_workload(options, model, batches);
//   });
//
// Throws what load_model and ExportedModule throw, and UsageError "models.sequence-too-long".
// Thread rule: the training thread.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "data/column_names.h"
#include "exported/exported_parts.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/exported/exported_module.h"
#include "hasten/models/lora.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/prepare/detail/convert_weights.h"
#include "hasten/trainer/estimate.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

// The rows of an estimate, and how to compute their loss if the model does not do so.
struct EstimateBatches {
  ColumnDataset rows;
  LossFunction loss = {};
  bool needs_labels = false;  // also for inference
};

// Returns the arguments of a Trainer that makes the steps of the estimate and keeps nothing of
// them, except files in the folder `scratch`.
TrainingArguments workload_arguments(const EstimateOptions& options,
                                     const std::filesystem::path& scratch);
AcceleratorOptions accelerator_options_of(const EstimateOptions& options);
// Returns the parts of the exported file, or null for a model of load_model.
std::shared_ptr<const ExportedModule::Parts> exported_parts(const EstimateOptions& options);

// The constructor makes the rows, because they are real even in a dry run: the size of an
// embedding's gradient depends on the number of different ids. visit() loads the model, in the dry
// run.
class EstimateWorkload {
 public:
  explicit EstimateWorkload(const EstimateOptions& options)
      : options_(options), parts_(exported_parts(options)), batches_(make_batches()) {}

  // Calls f with the model and the batches.
  template <class F>
  auto visit(F f) const {
    if (parts_ == nullptr) return f(adapted(load().model), batches_);
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
  LoadedModel load() const;
  EstimateBatches make_batches() const;
  ColumnDataset rows_of_ids(std::int64_t rows) const;

  EstimateOptions options_;
  std::shared_ptr<const ExportedModule::Parts> parts_;
  EstimateBatches batches_;
};

// Trains the model with a Trainer that reports nothing.
template <class Model>
void train_workload(const EstimateOptions& options, const std::shared_ptr<Model>& model,
                    const EstimateBatches& batches) {
  const TemporaryDirectory scratch("hasten-estimate");
  TrainingArguments args = workload_arguments(options, scratch.path());
  args.anatomy.clear();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(batches.rows),
                   .compute_loss = batches.loss,
                   .log_sink = [](std::string_view) {}});
  trainer.train();
}

// Runs the model. `begin` returns a function that is called after each batch and returns true to
// stop.
template <class Model, class Begin>
void infer_workload(Accelerator& accelerator, const EstimateOptions& options,
                    const std::shared_ptr<Model>& module, const EstimateBatches& batches,
                    Begin begin) {
  auto plain =
      make_loader(batches.rows, {.batch_size = options.arguments.per_device_train_batch_size});
  auto [model, loader] = accelerator.prepare(module, plain);
  module->eval();
  const torch::NoGradGuard no_grad;
  const auto after = begin();
  for (auto& batch : loader) {
    if (!batches.needs_labels) batch.erase(kLabelsColumn);
    model(batch);
    if (after()) return;
  }
}

}  // namespace hasten
