// State and helpers that the files of the Trainer share. The loop itself is in training_run.cpp.
#pragma once

#include <torch/torch.h>

#include "device/device.h"
#include "hasten/accelerator.h"
#include "hasten/checkpoint/training_state.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

struct Trainer::Impl {
  Impl(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments, TrainerParts parts);

  // Called in all processes after each batch of an evaluation. True ends it.
  using Stops = std::function<bool()>;
  static bool never() { return false; }

  // Returns nullopt if `stops` ended it.
  std::optional<Metrics> evaluate(const TrainerDataset& dataset, const std::string& prefix,
                                  const Stops& stops);
  // Runs the model over this process's share of the data. `each` gets the logits and labels (or
  // undefined) of every batch. Returns the mean loss over the rows of all processes that have one;
  // nullopt: none has.
  std::optional<double> evaluation_loop(
      const TrainerDataset& dataset,
      const std::function<void(const at::Tensor&, const at::Tensor&)>& each, const Stops& stops);
  // Adds logits and labels to compute_metrics.
  void add_to_metric(const at::Tensor& logits, const at::Tensor& labels) const;
  // Returns the metrics over all processes. A collective.
  Metrics computed_metrics() const;
  // The column that label_names names; undefined if the batch has none.
  at::Tensor labels_of(const TensorDict& batch) const;
  // The logits of the batch without the padding for a device of static shapes. They then come on the
  // CPU, as each other number of rows would be another program there.
  at::Tensor logits_of(const ModelOutput& out, const TensorDict& given) const;
  // The number that a loss is a mean over: labels that are not -100, or rows.
  double count_items(const TensorDict& batch) const;
  // The model's loss, or the one with label smoothing.
  at::Tensor loss_of(const ModelOutput& out, const TensorDict& batch) const;
  LoaderOptions loader_options(std::int64_t batch_size) const;

  const Group& group() const { return accelerator.group(); }
  const DeviceTraits& traits() const { return device_of(accelerator.device()).traits(); }
  // True if this process writes the files that all share.
  bool writes() const;
  // Returns the state of a run that begins.
  TrainerState new_state() const;
  // Sets the fields that say which process this is.
  void note_process(TrainerState& state) const;

  void log(Metrics logs);
  void write_model(const std::filesystem::path& folder) const;

  TrainerEvent event() { return {.args = args, .state = state, .model = *model}; }
  template <class... Parameters, class... Arguments>
  void notify_callbacks(void (TrainerCallback::*hook)(const TrainerEvent&, TrainerControl&,
                                                      Parameters...),
                        Arguments&&... arguments) {
    for (const auto& callback : parts.callbacks)
      ((*callback).*hook)(event(), control, arguments...);
  }

  std::shared_ptr<PreTrainedModel> model;
  TrainingArguments args;
  TrainerParts parts;
  Accelerator accelerator;
  Logger logger;
  std::map<std::string, std::string> extra_files;  // bytes by name, in the process that writes
  TrainerState state;
  TrainerControl control;
};

// Runtime and rates, rounded to 4 and 3 decimals as in the Hugging Face Trainer.
Metrics speed_metrics(const std::string& prefix, double seconds, double samples, double steps);
// Throws MemoryError "trainer.out-of-memory" with LibTorch's text and what to try.
[[noreturn]] void explain_out_of_memory(const std::string& text, const TrainingArguments& args,
                                        const std::string& during);
bool is_out_of_memory(const c10::Error& error);

}  // namespace hasten
