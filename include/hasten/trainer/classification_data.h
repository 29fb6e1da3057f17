// File: hasten/trainer/classification_data.h
// The files of `hasten train` as datasets for text classification: a table of texts, ready-made
// ids, or dummy rows.
//
//   ClassificationFiles files(options);  // reads the tables and determines their labels
//   LoadedModel loaded = load_model(options.model, files.model_options());
//   TrainerDataset train = files.train(*loaded.model), eval = files.eval(*loaded.model);
//
// A text file (.tsv, .csv, .jsonl) needs the tokenizer of the model folder. Its labels are the
// numbers of a regression or the names of classes, as docs/formats.md describes. A safetensors file
// holds input_ids, attention_mask ([rows, length]) and labels: integers [rows] for classes, numbers
// [rows] or [rows, labels] for a regression or for several labels per row. "dummy" is
// options.dummy_rows rows (512) of options.dummy_length ids (512), with labels 0 and 1. The ids are
// from 100 to 29999, or to the end of a smaller vocabulary. Ids and labels are checked against the
// model before training. Throws DataError, IoError, ConfigError. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/trainer/task_data.h"

namespace hasten {

class HASTEN_API ClassificationFiles : public TaskData {
 public:
  explicit ClassificationFiles(const TrainOptions& options,
                               EvalLabels eval_labels = EvalLabels::required);
  ~ClassificationFiles() override;

  ModelOptions model_options() const override;
  TrainerDataset train(const PreTrainedModel& model) const override;
  TrainerDataset eval(const PreTrainedModel& model) const override;
  // The accuracy, or for a regression "mse", "rmse" and "mae".
  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel& model) const override;
  std::vector<std::filesystem::path> tokenizer_files() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
