// File: trainer/data_files.h (internal)
// Functions for the data files and the model folder that the tasks of `hasten train` share.
//
//   if (is_text_file(options.data)) tokenizer.emplace(tokenizer_folder(options));
//   check_rows(columns, model, options.data);
//
// Throws ConfigError "train.no-tokenizer", and DataError "data.*". Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hasten/data/column_dataset.h"
#include "hasten/data/text_reader.h"
#include "hasten/data/token_dataset.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/train_options.h"
#include "trainer/row_tokenizer.h"

namespace hasten {

// True if a file is given and has texts, that is, neither ids nor dummy data.
bool is_text_file(const std::string& file);
// Returns the folder of the model, which must be a folder because texts need its tokenizer.
std::filesystem::path tokenizer_folder(const TrainOptions& options);
// Returns the tokenizer's files in a model folder.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

// Returns the options of the model that do not depend on the data.
ModelOptions model_options_for(Task task, const TrainOptions& options);
// Returns the maximum number of tokens of a row.
std::int64_t max_row_length(const TrainOptions& options, const PreTrainedModel& model);

// True if the table has a column of this name.
bool has_column(const TextTable& table, const std::string& name);
// True if the table has such a column and one of its fields is not blank.
bool has_filled_column(const TextTable& table, const std::string& name);
// Returns the encoded texts of the table, or pairs of texts if it has options.text_pair_column, cut
// to max_length tokens.
TokenDataset encode_texts(const RowTokenizer& tokenizer, const TextTable& table,
                          const TrainOptions& options, std::int64_t max_length);

// Returns the id of padding. Throws unless the model has this id.
std::int64_t padding_id(const RowTokenizer& tokenizer, const PreTrainedModel& model);

// Opens the columns of a file, or makes dummy rows of the model's ids.
ColumnDataset open_columns(const std::string& file, const TrainOptions& options,
                           const PreTrainedModel& model);
// Checks the number, the lengths and the ids of the rows.
void check_rows(const ColumnDataset& columns, const PreTrainedModel& model,
                const std::string& source);
// Returns the labels of rows. They are float [rows, ...] for a regression and for several labels
// per row, and int64 [rows] for classes.
at::Tensor row_labels(const at::Tensor& labels, const PreTrainedModel& model,
                      const std::string& source);
// Returns the labels of tokens as int64. Throws unless each token has a label, which is below
// `classes` or -100.
at::Tensor token_labels(const ColumnDataset& columns, std::int64_t classes,
                        const std::string& source);

}  // namespace hasten
