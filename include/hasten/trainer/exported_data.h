// File: hasten/trainer/exported_data.h
// The files of `hasten train --model model.pt2` as datasets for the inputs of an exported program.
//
//   const auto model = load_exported(options.model);
//   ExportedFiles files(options, *model);
//   files.check_batches(arguments, /*processes=*/1);
//   Trainer trainer(model, arguments, {.train_dataset = files.train(),
//                                      .eval_dataset = files.eval(),
//                                      .compute_loss = files.compute_loss(),
//                                      .compute_metrics = files.compute_metrics()});
//
// A column belongs to the input of the same name; other columns are ignored. A safetensors file has
// a tensor [rows, ...] for each input. In a table (.tsv, .csv, .jsonl) a field is a number, or a
// JSON array of numbers, of the same shape in every row. If a table has the text column and not
// input_ids, the tokenizer in the folder of the .pt2 file makes input_ids, attention_mask and
// token_type_ids; they are padded to the longest row of a batch, or to the length of the export.
// The column of the labels is "labels", or in a table options.label_column. Names of classes are
// numbered by id2label in the config.json next to the .pt2 file, or else in the order of their
// bytes. Their number must equal the number of classes of the program. "dummy" generates random
// rows. Everything is checked against the program before training. Throws DataError, IoError,
// ConfigError, UsageError "exported.*". Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/exported/exported_module.h"
#include "hasten/metrics/metric.h"
#include "hasten/options/train_options.h"
#include "hasten/options/training_arguments.h"
#include "hasten/prepare/detail/compute_loss.h"
#include "hasten/trainer/detail/trainer_dataset.h"
#include "hasten/trainer/task_data.h"

namespace hasten {

class HASTEN_API ExportedFiles {
 public:
  // The module must outlive this object. If the labels of eval() are optional, its rows may lack
  // them: the program gets zeros in their place, and the loss that it computes from them is left
  // out.
  ExportedFiles(const TrainOptions& options, ExportedModule& model,
                EvalLabels eval_labels = EvalLabels::required);
  ~ExportedFiles();

  // The rows of --data and of --eval_data; empty if the option was not given.
  const TrainerDataset& train() const;
  const TrainerDataset& eval() const;
  // Returns a function that computes the loss of a program that does not return it, and makes the
  // labels that rows lack. Returns no function if neither is necessary.
  LossFunction compute_loss() const;
  // The accuracy if the program classifies rows; null otherwise.
  std::shared_ptr<EvalMetric> compute_metrics() const;
  // The files of the tokenizer and the configuration next to the .pt2 file, to be saved with the
  // model.
  std::vector<std::filesystem::path> extra_files() const;
  // Throws UsageError "exported.inputs" if the program does not take the batches of a run: full
  // ones, and the shorter ones at the end of an epoch.
  void check_batches(const TrainingArguments& arguments, std::int64_t processes) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
