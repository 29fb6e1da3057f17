// File: trainer/arrow_rows.h (internal)
// Rows of ids in Arrow or Parquet data, for the tasks of `hasten train`.
//
//   if (has_arrow_column(options.data, "input_ids")) {
//     ArrowRows rows(options.data, options.label_column);
//     rows.check(model);
//     return TrainerDataset(rows, DataCollatorWithPadding{});
//   }
//
// Rows stay in the files and may differ in length. Throws what load_arrow_dataset throws, and
// DataError "data.ids", "data.lengths", "data.labels" and "data.empty". Thread rule: reading is
// safe on many threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/data/arrow_dataset.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/train_options.h"

namespace hasten {

// True if `file` is Arrow or Parquet data with this column.
bool has_arrow_column(const std::string& file, const std::string& column);

// Returns the options with the folder of one split for each folder of several splits: `train` for
// the training data, `validation` or else `test` for the evaluation data. Throws
// "data.arrow-folder" if there is none.
TrainOptions with_splits(TrainOptions options);

// Returns all rows as one tensor for each column. The rows must be equally long. The label column
// is named labels.
TensorDict arrow_tensors(const std::string& file, const std::string& label_column);

class ArrowRows {
 public:
  // The rows have input_ids, and attention_mask and token_type_ids if they exist. They have
  // `labels` from the column of that name, or else from `label_column`.
  ArrowRows(const std::string& file, const std::string& label_column);

  std::int64_t size() const noexcept { return rows_.size(); }
  TensorDict get(std::int64_t index) const;

  bool has_labels() const { return label_column_.has_value(); }
  // The names of the classes; empty if the file does not have them.
  std::vector<std::string> class_names() const;
  // Leaves out the labels.
  void drop_labels() { label_column_.reset(); }

  // Checks the number, the lengths and the ids of the rows.
  void check(const PreTrainedModel& model) const;
  // Checks that each row has a label, and keeps the labels in the form that the model takes
  // (row_labels).
  void check_row_labels(const PreTrainedModel& model);
  // Checks that each token has a label below `classes`, or -100.
  void check_token_labels(std::int64_t classes) const;

 private:
  std::string source_;
  ArrowDataset rows_;
  std::optional<std::string> label_column_;
  at::Tensor labels_;  // the labels of all rows, once they have been checked
};

}  // namespace hasten
