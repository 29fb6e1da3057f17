#include "hasten/trainer/classification_data.h"

#include <torch/torch.h>

#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/text_reader.h"
#include "hasten/data/token_dataset.h"
#include "hasten/machine/model_folder.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/data_files.h"
#include "trainer/text_labels.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// One of the two data files: a table, columns of tensors, rows of ids, dummy rows, or none.
struct DataFile {
  std::string name;
  bool needs_labels = true;
  std::optional<TextTable> table;
  std::optional<ColumnDataset> columns;
  std::optional<ArrowRows> rows;

  // False if labels are optional and the file has no column for them, or only empty fields.
  bool has_labels(const std::string& column) const {
    if (needs_labels) return true;
    if (rows) return rows->has_labels();
    if (!table) return columns->columns().count("labels") > 0;
    return has_filled_column(*table, column);
  }
};

}  // namespace

struct ClassificationFiles::Impl {
  TrainOptions options;
  std::optional<RowTokenizer> tokenizer;
  DataFile train, eval;
  std::optional<TextLabels> labels;  // the labels of the training data, if it is a table
  std::optional<TextLabels>
      eval_labels;  // the labels of the evaluation data, if it is a table with labels

  void read(DataFile& file, const std::string& name) const {
    file.name = name;
    if (is_text_file(name)) {
      std::vector<std::string> columns = {options.text_column};
      if (file.needs_labels) columns.push_back(options.label_column);
      file.table = read_text_table(name, {.columns = columns});
    } else if (is_arrow_data(name)) {
      file.rows.emplace(name, options.label_column);
    } else if (!name.empty() && name != kDummyData) {
      file.columns = load_columns(name);
    }
  }

  // Checks that a second text is in both files or in neither.
  void check_pairs() const {
    if (!train.table || !eval.table) return;
    for (const auto& [has, lacks] : {std::pair{&train, &eval}, std::pair{&eval, &train}}) {
      if (has_column(*has->table, options.text_pair_column))
        (void)lacks->table->column(options.text_pair_column);
    }
  }

  TrainerDataset dataset(const DataFile& file, const PreTrainedModel& model) const {
    if (file.name.empty()) return TrainerDataset();
    if (file.table) return dataset_from_table(file, model);
    if (file.rows) return dataset_from_rows(file, model);
    return dataset_from_columns(
        file.columns ? *file.columns
                     : dummy_rows(options.dummy_rows, options.dummy_length, model.vocab_size()),
        model, file.name, !file.columns || file.has_labels(options.label_column));
  }

  TrainerDataset dataset_from_table(const DataFile& file, const PreTrainedModel& model) const {
    const TextTable& table = *file.table;
    TokenDataset tokens = encode_texts(*tokenizer, table, options, max_row_length(options, model));
    check_ids(tokens, model.vocab_size(), file.name);
    if (file.has_labels(options.label_column)) {
      const TextLabels& meaning = labels ? *labels : *eval_labels;
      tokens.set_labels(meaning.encode(table, options.label_column));
      check_labels(tokens, model.num_labels(), file.name, model.problem_type());
    }
    return TrainerDataset(std::move(tokens),
                          DataCollatorWithPadding{.pad_token_id = padding_id(*tokenizer, model)});
  }

  TrainerDataset dataset_from_rows(const DataFile& file, const PreTrainedModel& model) const {
    ArrowRows rows = *file.rows;
    rows.check(model);
    if (file.has_labels(options.label_column)) {
      rows.check_row_labels(model);
    } else {
      rows.drop_labels();
    }
    return TrainerDataset(std::move(rows), DataCollatorWithPadding{});
  }

  TrainerDataset dataset_from_columns(const ColumnDataset& columns, const PreTrainedModel& model,
                                      const std::string& source, bool has_labels) const {
    check_rows(columns, model, source);
    if (!has_labels) return TrainerDataset(columns);
    check_labels(columns, model.num_labels(), source, model.problem_type());
    TensorDict tensors = columns.columns();
    tensors["labels"] = row_labels(tensors.at("labels"), model, source);
    return TrainerDataset(ColumnDataset(std::move(tensors)));
  }
};

ClassificationFiles::ClassificationFiles(const TrainOptions& options, EvalLabels eval_labels)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  if (is_text_file(options.data) || is_text_file(options.eval_data))
    impl_->tokenizer.emplace(tokenizer_folder(options));
  DataFile &train = impl_->train, &eval = impl_->eval;
  eval.needs_labels = eval_labels == EvalLabels::required;
  impl_->read(train, options.data);
  impl_->read(eval, options.eval_data);
  impl_->check_pairs();
  const std::string& column = options.label_column;
  if (train.table) {
    impl_->labels = resolve_training_labels(*train.table, column, options.num_labels,
                                            configured_labels(options.model));
  } else if (eval.table && eval.has_labels(column)) {
    impl_->eval_labels = resolve_evaluation_labels(*eval.table, column, options.num_labels,
                                                   configured_labels(options.model));
  }
}

ClassificationFiles::~ClassificationFiles() = default;

ModelOptions ClassificationFiles::model_options() const {
  ModelOptions out =
      with_labels(model_options_for(Task::text_classification, impl_->options), impl_->labels);
  if (impl_->train.rows && !impl_->options.num_labels)
    out.labels = impl_->train.rows->class_names();
  return out;
}

TrainerDataset ClassificationFiles::train(const PreTrainedModel& model) const {
  return impl_->dataset(impl_->train, model);
}

TrainerDataset ClassificationFiles::eval(const PreTrainedModel& model) const {
  return impl_->dataset(impl_->eval, model);
}

std::shared_ptr<EvalMetric> ClassificationFiles::metrics(const PreTrainedModel& model) const {
  return row_metrics(model);
}

std::vector<fs::path> ClassificationFiles::tokenizer_files() const {
  return tokenizer_files_in(model_folder(impl_->options.model));
}

}  // namespace hasten
