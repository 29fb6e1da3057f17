// File: hasten/trainer/classification_data.h
// The files of `hasten train` as data sets for text classification: a table of texts, ready-made
// ids, or dummy rows.
//
//   ClassificationFiles files(options);                         // reads the tables and the names
//   of the labels LoadedModel loaded = load_model(options.model, files.model_options());
//   TrainerDataset train = files.train(*loaded.model), eval = files.eval(*loaded.model);
//
// A text file (.tsv, .csv, .jsonl) needs the model folder's tokenizer; labels are names, numbered
// in sorted order, or in the order of the model's own id2label where that has the same names. A
// safetensors file holds input_ids, attention_mask ([rows, length]) and labels ([rows]) as
// integers. "dummy" is 512 rows of 512 ids in [100, 30000) with labels 0 and 1. Ids and labels are
// checked against the model before training. Throws DataError, IoError, ConfigError. Thread rule:
// one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "hasten/config/train_options.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/trainer/trainer_dataset.h"

namespace hasten {

class ClassificationFiles {
 public:
  explicit ClassificationFiles(const TrainOptions& options);
  ~ClassificationFiles();

  // What the data says of the model: names or number of labels; with the options' own wishes.
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
