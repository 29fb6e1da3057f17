// File: trainer/text_labels.h (internal)
// Decides how a model reads the labels of a text file: as the numbers of a
// regression, or as classes.
//
//   const TextLabels labels = resolve_training_labels(table, "label", options.num_labels,
//                                                configured_labels(options.model));
//   at::Tensor train = labels.encode(table, "label"), eval = labels.encode(eval_table, "label");
//
// One label (num_labels 1) or problem_type regression means a regression. The classes are those of
// the model's configuration if it has all names that occur. LABEL_k then also means the text "k",
// and in an evaluation whole numbers are ids. Otherwise the classes are those of the training data:
// whole numbers below num_labels are their own ids, and other names are numbered in the order of
// TextTable::class_names. Without num_labels, numbers with fractions are a regression, as in
// transformers' examples. Throws DataError "train.labels" if file, option and model contradict each
// other or leave the meaning open, and "text.class" and "text.number" with the line of a label that
// does not fit. Thread rule: values and pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/data/text_reader.h"
#include "hasten/metrics/metric.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

struct TextLabels {
  bool regression = false;
  std::vector<std::string> classes;         // by id; empty for a regression
  std::map<std::string, std::int64_t> ids;  // the id of every text that means a class

  // Returns the column's labels: float [rows] for a regression, else int64 [rows].
  at::Tensor encode(const TextTable& table, const std::string& column) const;
};

TextLabels resolve_training_labels(const TextTable& table, const std::string& column,
                                   std::optional<std::int64_t> num_labels,
                                   const ConfiguredLabels& configured);
// Resolves the labels for a model that was trained before. If the model has no names for its
// labels, the file's names are used if the number of names is the same.
TextLabels resolve_evaluation_labels(const TextTable& table, const std::string& column,
                                     std::optional<std::int64_t> num_labels,
                                     const ConfiguredLabels& configured);

// Adds the options that the labels of the training data determine. Without labels it adds nothing.
ModelOptions with_labels(ModelOptions options, const std::optional<TextLabels>& labels);
// Returns the scores of a model with one label for each row.
std::shared_ptr<EvalMetric> row_metrics(const PreTrainedModel& model);

}  // namespace hasten
