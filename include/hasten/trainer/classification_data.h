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
// options.dummy_rows rows (512) of options.dummy_length ids (512) from 100 to 29999, as far as the
// vocabulary has them, with labels 0 and 1. Ids and labels are checked against the model before
// training. Throws DataError, IoError, ConfigError. Thread rule: one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hasten/models/pretrained_model.h"
#include "hasten/options/train_options.h"
#include "hasten/trainer/trainer_dataset.h"

namespace hasten {

// Whether the evaluation data must have labels; a prediction does not need them.
enum class EvalLabels { required, optional };

class ClassificationFiles {
 public:
  explicit ClassificationFiles(const TrainOptions& options,
                               EvalLabels eval_labels = EvalLabels::required);
  ~ClassificationFiles();

  // The options of the model that follow from the data (number, names and kind of the labels) and
  // from TrainOptions.
  ModelOptions model_options() const;
  // The rows of --data, checked against the model.
  TrainerDataset train(const PreTrainedModel& model) const;
  // The rows of --eval_data, checked against the model; empty if it was not given.
  TrainerDataset eval(const PreTrainedModel& model) const;
  // The tokenizer's files in the model folder, to be saved with the model.
  std::vector<std::filesystem::path> tokenizer_files() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
