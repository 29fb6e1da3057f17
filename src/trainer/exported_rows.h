// File: trainer/exported_rows.h (internal)
// The inputs and outputs of an exported program that training needs: random rows for a program, the
// loss of a program that returns none, and the number of its classes.
//
//   const ColumnDataset rows = example_rows(model.parts(), 64, 128);
//   Trainer trainer(model, arguments, {.train_dataset = TrainerDataset(rows),
//                                      .compute_loss = loss_for(model.parts())});
//
// Throws UsageError "exported.inputs" for inputs that have no rows, "exported.no-loss" for a
// program whose loss is unknown. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "exported/exported_parts.h"
#include "hasten/data/column_dataset.h"
#include "hasten/prepare/detail/compute_loss.h"

namespace hasten {

// Returns rows for the inputs: ids of the vocabulary or 0 and 1 for integers, ones for masks, and
// normal numbers for the others. `length` is each dynamic size other than the number of rows. If
// the program takes no labels, the labels are classes.
ColumnDataset example_rows(const ExportedModule::Parts& parts, std::int64_t rows,
                           std::int64_t length);

// Returns the input of the training program with this name, or null if it has none.
const exported::UserInput* find_input(const ExportedModule::Parts& parts, const std::string& name);

// Returns the loss of a program without the output "loss", from its logits [rows, classes] and the
// column "labels": the cross entropy for whole numbers, and the squared error for other numbers.
// Returns no function for a program that returns its loss.
LossFunction loss_for(const ExportedModule::Parts& parts);

// Returns zeros in place of the labels that the program takes and the batch lacks.
at::Tensor placeholder_labels(const ExportedModule::Parts& parts, const TensorDict& batch);

// Returns a function that computes the outputs of a program that takes labels. It also accepts
// batches without labels, which have no loss.
LossFunction loss_with_optional_labels();

// Returns the number of classes if the program classifies rows: its logits have two dimensions, and
// its labels (if it takes them) are one whole number for each row.
std::optional<std::int64_t> num_row_classes(const ExportedModule::Parts& parts);

}  // namespace hasten
