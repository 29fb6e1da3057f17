// File: hasten/trainer/token_classification_data.h
// The files of `hasten train --task token-classification` as datasets: words with tags, ready-made
// ids, or dummy rows.
//
//   TokenClassificationFiles files({.model = "bert-base-cased",
//                                   .task = TrainTask::token_classification,
//                                   .data = "train.jsonl",
//                                   .text_column = "tokens",
//                                   .label_column = "tags"});
//   LoadedModel loaded = load_model("bert-base-cased", files.model_options());
//   TrainerDataset train = files.train(*loaded.model);
//
// A .jsonl file (hasten/data/tagged_words.h) needs the tokenizer of the model folder. A word's tag
// is the label of its first token; its other tokens, and the special ones, have the label -100. The
// tags get their ids like the labels of a table (docs/formats.md). A safetensors file holds
// input_ids, attention_mask and labels, all [rows, length]. The labels of dummy rows follow from
// the ids. Metrics: accuracy, and the means over the tags of precision, recall and F1, all of
// tokens and not of whole entities. Throws DataError, IoError, ConfigError. Thread rule: one thread
// at a time.
// Source: run_ner.py of transformers, without label_all_tokens.
#pragma once

#include "hasten/base/export.h"
#include "hasten/trainer/task_data.h"

namespace hasten {

class HASTEN_API TokenClassificationFiles : public TaskData {
 public:
  explicit TokenClassificationFiles(const TrainOptions& options,
                                    EvalLabels eval_labels = EvalLabels::required);
  ~TokenClassificationFiles() override;

  ModelOptions model_options() const override;
  TrainerDataset train(const PreTrainedModel& model) const override;
  TrainerDataset eval(const PreTrainedModel& model) const override;
  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel& model) const override;
  std::vector<std::filesystem::path> tokenizer_files() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
