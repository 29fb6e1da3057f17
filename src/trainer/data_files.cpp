#include "trainer/data_files.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "data/problem_type.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/model_folder.h"
#include "trainer/arrow_rows.h"

namespace hasten {

namespace fs = std::filesystem;

bool is_text_file(const std::string& file) {
  return !file.empty() && file != kDummyData && !ends_with(lower(file), ".safetensors") &&
         !has_arrow_column(file, "input_ids") && !has_arrow_column(file, "pixel_values");
}

fs::path tokenizer_folder(const TrainOptions& options) {
  const fs::path folder = model_folder(options.model);
  if (fs::is_directory(folder)) return folder;
  throw ConfigError("train.no-tokenizer",
                    {.what = "--data with texts",
                     .got = "--model " + options.model,
                     .expected = "a model folder with tokenizer.json or vocab.txt",
                     .hint = "a configuration or a built-in name has no vocabulary: pass --model "
                             "FOLDER, which overrides the model of a configuration file, or "
                             "safetensors files of token ids"});
}

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}) {
    if (fs::is_regular_file(folder / name)) found.push_back(folder / name);
  }
  return found;
}

ModelOptions model_options_for(Task task, const TrainOptions& options) {
  return {.task = task,
          .num_labels = options.num_labels.value_or(0),
          .hidden_dropout = options.hidden_dropout,
          .attention_dropout = options.attention_dropout,
          .classifier_dropout = options.classifier_dropout,
          .attn_implementation = options.attn_implementation,
          .weights = options.weights,
          .ignore_mismatched_sizes = options.ignore_mismatched_sizes};
}

std::int64_t max_row_length(const TrainOptions& options, const PreTrainedModel& model) {
  return std::min(options.max_length, model.max_length());
}

bool has_column(const TextTable& table, const std::string& name) {
  return std::find(table.names().begin(), table.names().end(), name) != table.names().end();
}

bool has_filled_column(const TextTable& table, const std::string& name) {
  if (!has_column(table, name)) return false;
  const auto& fields = table.column(name);
  return std::any_of(fields.begin(), fields.end(),
                     [](const std::string& field) { return !trim(field).empty(); });
}

TokenDataset encode_texts(const RowTokenizer& tokenizer, const TextTable& table,
                          const TrainOptions& options, std::int64_t max_length) {
  const EncodeOptions encode{.truncation = Truncation::longest_first, .max_length = max_length};
  const auto& texts = table.column(options.text_column);
  const int threads = at::get_num_threads();
  const auto rows =
      has_column(table, options.text_pair_column)
          ? tokenizer.encode_batch(texts, table.column(options.text_pair_column), encode, threads)
          : tokenizer.encode_batch(texts, encode, threads);
  TokenDataset tokens;
  for (const Encoding& row : rows) tokens.push_back(row);
  return tokens;
}

std::int64_t padding_id(const RowTokenizer& tokenizer, const PreTrainedModel& model) {
  const std::int64_t id = tokenizer.pad_id();
  if (id < model.vocab_size()) return id;
  throw DataError("data.ids",
                  {.what = "the id of the padding token",
                   .got = str(id),
                   .expected = str("0 to ", model.vocab_size() - 1, ", the ids of the model"),
                   .hint = "set pad_token in tokenizer_config.json to a token of the model"});
}

ColumnDataset open_columns(const std::string& file, const TrainOptions& options,
                           const PreTrainedModel& model) {
  return file == kDummyData
             ? dummy_rows(options.dummy_rows, options.dummy_length, model.vocab_size())
             : load_columns(file);
}

void check_rows(const ColumnDataset& columns, const PreTrainedModel& model,
                const std::string& source) {
  if (columns.size() == 0) {
    throw DataError("data.empty", {.what = source,
                                   .got = "no rows",
                                   .expected = "at least one",
                                   .hint = "check that the file is complete"});
  }
  check_lengths(columns, model.max_length(), source);
  check_ids(columns, model.vocab_size(), source);
}

at::Tensor row_labels(const at::Tensor& labels, const PreTrainedModel& model,
                      const std::string& source) {
  const std::string problem_type =
      problem_type_of(model.problem_type(), model.num_labels(), labels.is_floating_point());
  if (problem_type != kSingleLabel) return labels.to(at::kFloat);
  if (labels.numel() != labels.size(0)) {
    throw DataError("data.labels", {.what = source + ": labels",
                                    .got = str(labels.numel() / labels.size(0), " per row"),
                                    .expected = str("one per row, for ", problem_type)});
  }
  return labels.to(at::kLong).flatten();
}

at::Tensor token_labels(const ColumnDataset& columns, std::int64_t classes,
                        const std::string& source) {
  check_labels(columns, classes, source, kSingleLabel);
  const at::Tensor& labels = columns.columns().at("labels");
  const at::Tensor& ids = columns.columns().at("input_ids");
  if (labels.sizes() != ids.sizes()) {
    throw DataError("data.labels", {.what = source + ": labels",
                                    .got = "shape " + c10::str(labels.sizes()),
                                    .expected = c10::str(ids.sizes(), ", one for each token")});
  }
  return labels.to(at::kLong);
}

}  // namespace hasten
