// File: hasten/trainer/classification_data.h
// The files of `hasten train` as data sets for text classification: a table of texts, ready-made
// ids, or dummy rows.
//
//   ClassificationFiles files(options);   // reads the tables and what their labels are
//   LoadedModel loaded = load_model(options.model, files.model_options());
//   TrainerDataset train = files.train(*loaded.model), eval = files.eval(*loaded.model);
//
// A text file (.tsv, .csv, .jsonl) needs the model folder's tokenizer. Its labels are the numbers
// of a regression or the names of classes, as docs/formats.md describes. A safetensors file holds
// input_ids, attention_mask ([rows, length]) and labels: [rows] as integers for classes, as
// numbers [rows] or [rows, labels] for a regression or several labels a row. "dummy" is 512 rows of
// 512 ids from 100 to 29999, as far as the vocabulary has them, with labels 0 and 1. Ids and labels
// are checked against the model before training. Throws DataError, IoError, ConfigError. Thread
// rule: one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hasten/config/train_options.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/trainer/trainer_dataset.h"

namespace hasten {

// Whether the evaluation data must have labels: a prediction alone needs none.
enum class EvalLabels { required, optional };

class ClassificationFiles {
 public:
  explicit ClassificationFiles(const TrainOptions& options,
                               EvalLabels eval_labels = EvalLabels::required);
  ~ClassificationFiles();

  // What the data says of the model: number, names and kind of the labels; and the options' part.
  ModelOptions model_options() const;
  TrainerDataset train(const PreTrainedModel& model) const;
  // None where --eval_data was not given.
  TrainerDataset eval(const PreTrainedModel& model) const;
  // The tokenizer's files, to be saved beside the model.
  std::vector<std::filesystem::path> tokenizer_files() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
