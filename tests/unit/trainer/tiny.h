// The fixtures of the Trainer's tests: a tiny model, its rows, and a folder for saved files.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/models/bert.h"
#include "hasten/options/training_arguments.h"
#include "hasten/trainer/trainer.h"

namespace hasten::tiny_runs {

// A new folder for each test, deleted afterwards.
struct Folder {
  TemporaryDirectory directory;
  std::filesystem::path path = directory.path() / "run";  // does not exist yet
};

inline BertConfig tiny(double dropout = 0.1) {
  return {.vocab_size = 60,
          .hidden_size = 16,
          .num_hidden_layers = 1,
          .num_attention_heads = 2,
          .intermediate_size = 32,
          .hidden_dropout_prob = dropout,
          .attention_probs_dropout_prob = dropout,
          .max_position_embeddings = 16};
}

template <class Model = BertForSequenceClassification>
std::shared_ptr<PreTrainedModel> new_model(double dropout = 0.1) {
  torch::manual_seed(7);
  auto model = std::make_shared<Model>(tiny(dropout));
  model->initialize();
  return model;
}

inline ColumnDataset rows(std::int64_t count) {
  torch::manual_seed(11);
  const at::Tensor ids = at::randint(5, 60, {count, 12});
  return ColumnDataset({{"input_ids", ids},
                        {"attention_mask", at::ones_like(ids)},
                        {"labels", ids.select(1, 0).gt(30).to(at::kLong)}});
}

// The arguments of a run on the CPU that logs every step and saves nothing.
inline TrainingArguments short_run(const std::filesystem::path& folder, std::int64_t batch = 4) {
  TrainingArguments args;
  args.output_dir = folder.string();
  args.per_device_train_batch_size = batch;
  args.logging_steps = 1;
  args.save_strategy = SaveStrategy::no;
  args.use_cpu = true;
  return args;
}

inline TrainingArguments twenty_steps(const std::filesystem::path& folder) {
  TrainingArguments args = short_run(folder, 2);
  args.per_device_eval_batch_size = 2;
  args.max_steps = 20;
  return args;
}

inline TrainingArguments three_epochs(const Folder& folder) {
  TrainingArguments args = short_run(folder.path);
  args.num_train_epochs = 3;
  args.learning_rate = 1e-3;
  return args;
}

// Returns the values that a run has logged under a name.
inline std::vector<double> logged(const Trainer& trainer, const std::string& key = "loss") {
  std::vector<double> out;
  for (const LogEntry& entry : trainer.state().log_history) {
    if (entry.contains(key)) out.push_back(entry.at(key));
  }
  return out;
}

}  // namespace hasten::tiny_runs
