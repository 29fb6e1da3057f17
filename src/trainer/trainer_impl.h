// What the Trainer's parts share: its arguments, state and helpers. The loop itself is
// training_run.cpp.
#pragma once

#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/checkpoint/training_state.h"
#include "hasten/trainer/trainer.h"

namespace hasten {

struct Trainer::Impl {
  Impl(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments, TrainerParts parts);

  // Asked in all processes after each batch of an evaluation: whether it ends there.
  using Stops = std::function<bool()>;
  static bool never() { return false; }

  // Nothing where `stops` ended it.
  std::optional<Metrics> evaluate(const TrainerDataset& dataset, const std::string& prefix,
                                  const Stops& stops);
  // Runs the model over this process's part of the data; `each` gets every batch's logits and
  // labels (undefined: none). Gives the mean loss over the rows of all processes that have labels,
  // nothing without.
  std::optional<double> evaluation_loop(
      const TrainerDataset& dataset,
      const std::function<void(const at::Tensor&, const at::Tensor&)>& each, const Stops& stops);
  // What compute_metrics finds in logits and labels.
  void add_to_metric(const at::Tensor& logits, const at::Tensor& labels) const;
  Metrics computed_metrics() const;
  // The column of label_names; undefined where the batch has none.
  at::Tensor labels_of(const TensorDict& batch) const;
  // The logits of the batch as it was before it went to the device; from a device that defers
  // reading on the CPU, as each other number of rows would be a program there.
  at::Tensor logits_of(const ModelOutput& out, const TensorDict& given) const;
  // What a loss is a mean over: labels that are not -100, or rows.
  double count_items(const TensorDict& batch) const;
  // The model's loss, or label smoothing in its place.
  at::Tensor loss_of(const ModelOutput& out, const TensorDict& batch) const;
  LoaderOptions loader_options(std::int64_t batch_size) const;

  const Group& group() const { return accelerator.group(); }
  // Whether this process writes what all share.
  bool writes() const;
  // Of a run that begins; and whose it is.
  TrainerState new_state() const;
  void note_process(TrainerState& state) const;

  void log(Metrics logs);
  void write_model(const std::filesystem::path& folder) const;

  TrainerEvent event() { return {.args = args, .state = state, .model = *model}; }
  template <class... Parameters, class... Arguments>
  void tell(void (TrainerCallback::*hook)(const TrainerEvent&, TrainerControl&, Parameters...),
            Arguments&&... arguments) {
    for (const auto& callback : parts.callbacks)
      ((*callback).*hook)(event(), control, arguments...);
  }

  std::shared_ptr<PreTrainedModel> model;
  TrainingArguments args;
  TrainerParts parts;
  Accelerator accelerator;
  Logger logger;
  std::map<std::string, std::string> extra_files;  // name and bytes; in the process that writes
  TrainerState state;
  TrainerControl control;
};

// Runtime and rates, rounded as the peer does: 4 and 3 decimals.
Metrics speed_metrics(const std::string& prefix, double seconds, double samples, double steps);
// Throws again what LibTorch says of memory that ran out, with what to try.
[[noreturn]] void explain_out_of_memory(const std::string& text, const TrainingArguments& args,
                                        const std::string& during);
bool is_out_of_memory(const c10::Error& error);

}  // namespace hasten
