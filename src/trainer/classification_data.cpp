#include "hasten/trainer/classification_data.h"

#include <torch/torch.h>

#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/text_reader.h"
#include "hasten/data/token_dataset.h"
#include "hasten/models/bert_config.h"
#include "hasten/tokenizers/bert_tokenizer.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

bool is_text(const std::string& file) {
  return !file.empty() && file != dummy_data && !ends_with(lower(file), ".safetensors");
}

// The names the model's configuration gives its labels, where it gives any of its own.
std::vector<std::string> configured_labels(const std::string& model) {
  if (BertConfig::by_name(model)) return {};
  const fs::path path = fs::is_directory(model) ? fs::path(model) / "config.json" : fs::path(model);
  std::vector<std::string> names;
  for (const auto& [id, name] : BertConfig::from_file(path).id2label) {
    if (starts_with(name, "LABEL_")) return {};
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

struct ClassificationFiles::Impl {
  TrainOptions options;
  std::optional<BertTokenizer> tokenizer;
  std::optional<TextTable> train_table, eval_table;
  std::optional<ColumnDataset> train_columns, eval_columns;
  std::vector<std::string> labels;  // of text files

  TextTable read(const std::string& file) const {
    return read_text_table(file, {.columns = {options.text_column, options.label_column}});
  }

  ColumnDataset columns(const std::string& file) const {
    if (file == dummy_data) return dummy_classification(options.dummy_rows, options.dummy_length);
    return load_columns(file);
  }

  TrainerDataset dataset(const TextTable& table, const PreTrainedModel& model,
                         const std::string& source) const {
    const EncodeOptions encode{.truncation = Truncation::longest_first,
                               .max_length = std::min(options.max_length, model.max_length())};
    const auto& texts = table.column(options.text_column);
    const bool pairs = std::find(table.names().begin(), table.names().end(),
                                 options.text_pair_column) != table.names().end();
    const int threads = at::get_num_threads();
    const auto rows = pairs ? tokenizer->encode_batch(texts, table.column(options.text_pair_column),
                                                      encode, threads)
                            : tokenizer->encode_batch(texts, encode, threads);
    TokenDataset tokens;
    for (const Encoding& row : rows) tokens.push_back(row);
    tokens.set_labels(at::tensor(table.classes(options.label_column, labels).ids, at::kLong));
    check_ids(tokens, model.vocab_size(), source);
    check_labels(tokens, model.num_labels(), source);
    return TrainerDataset(std::move(tokens),
                          DataCollatorWithPadding{.pad_token_id = tokenizer->pad_id()});
  }

  TrainerDataset dataset(const ColumnDataset& columns, const PreTrainedModel& model,
                         const std::string& source) const {
    if (columns.size() == 0) {
      throw DataError("data.empty", {.what = source,
                                     .got = "no rows",
                                     .expected = "at least one",
                                     .hint = "was the file written to its end?"});
    }
    check_lengths(columns, model.max_length(), source);
    check_ids(columns, model.vocab_size(), source);
    check_labels(columns, model.num_labels(), source);
    return TrainerDataset(columns);
  }
};

ClassificationFiles::ClassificationFiles(const TrainOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  const bool text = is_text(options.data) || is_text(options.eval_data);
  if (text) {
    if (!fs::is_directory(options.model)) {
      throw ConfigError(
          "train.no-tokenizer",
          {.what = "--data with texts",
           .got = "--model " + options.model,
           .expected = "a model folder with tokenizer.json or vocab.txt",
           .hint = "a configuration alone has no vocabulary; safetensors files of ids need none"});
    }
    impl_->tokenizer = BertTokenizer::from_pretrained(options.model);
  }
  if (is_text(options.data)) {
    impl_->train_table = impl_->read(options.data);
    const auto found = impl_->train_table->classes(options.label_column).names;
    const auto configured = configured_labels(options.model);
    impl_->labels = sorted(configured) == sorted(found) ? configured : found;
  } else if (!options.data.empty()) {
    impl_->train_columns = impl_->columns(options.data);
  }
  if (is_text(options.eval_data)) {
    if (impl_->labels.empty()) impl_->labels = configured_labels(options.model);
    impl_->eval_table = impl_->read(options.eval_data);
  } else if (!options.eval_data.empty()) {
    impl_->eval_columns = impl_->columns(options.eval_data);
  }
}

ClassificationFiles::~ClassificationFiles() = default;

ModelOptions ClassificationFiles::model_options() const {
  const TrainOptions& options = impl_->options;
  return {.task = Task::text_classification,
          .num_labels = options.num_labels.value_or(0),
          .labels = options.num_labels ? std::vector<std::string>{} : impl_->labels,
          .hidden_dropout = options.hidden_dropout.value_or(-1),
          .attn_implementation = options.attn_implementation,
          .weights = options.weights};
}

TrainerDataset ClassificationFiles::train(const PreTrainedModel& model) const {
  if (impl_->train_table) return impl_->dataset(*impl_->train_table, model, impl_->options.data);
  return impl_->train_columns ? impl_->dataset(*impl_->train_columns, model, impl_->options.data)
                              : TrainerDataset();
}

TrainerDataset ClassificationFiles::eval(const PreTrainedModel& model) const {
  if (impl_->eval_table) return impl_->dataset(*impl_->eval_table, model, impl_->options.eval_data);
  return impl_->eval_columns ? impl_->dataset(*impl_->eval_columns, model, impl_->options.eval_data)
                             : TrainerDataset();
}

std::vector<fs::path> ClassificationFiles::tokenizer_files() const {
  std::vector<fs::path> found;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}) {
    if (fs::is_regular_file(fs::path(impl_->options.model) / name))
      found.push_back(fs::path(impl_->options.model) / name);
  }
  return found;
}

}  // namespace hasten
