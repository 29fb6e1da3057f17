// File: hasten/trainer/masked_lm_data.h
// The files of `hasten train --task masked-lm` as datasets: texts, ready-made ids, or dummy rows.
//
//   MaskedLmFiles files({.model = "bert-base-uncased",
//                        .task = TrainTask::masked_lm,
//                        .data = "corpus.txt"});
//   LoadedModel loaded = load_model("bert-base-uncased", files.model_options());
//   TrainerDataset train = files.train(*loaded.model);
//
// Texts come from a table (.tsv, .csv, .jsonl) or from the lines of a .txt file, and need the
// tokenizer of the model folder. They are joined and cut into rows of max_length tokens, and the
// rest at the end is left out; with line_by_line each text is a row, cut to max_length. Texts
// without characters other than white space are left out. DataCollatorForLanguageModeling masks the
// rows. A safetensors file holds input_ids and attention_mask [rows, length]; if it has labels of
// this shape too, it is masked already and stays as it is. In dummy rows the selected tokens stay
// as they are. Metrics: the accuracy and the perplexity of the masked tokens. Throws DataError,
// IoError, ConfigError. Thread rule: one thread at a time.
// Source: run_mlm.py of transformers.
#pragma once

#include "hasten/base/export.h"
#include "hasten/trainer/task_data.h"

namespace hasten {

class HASTEN_API MaskedLmFiles : public TaskData {
 public:
  explicit MaskedLmFiles(const TrainOptions& options);
  ~MaskedLmFiles() override;

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
