#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <optional>
#include <utility>

#include "data/padding.h"
#include "hasten/data/language_modeling.h"
#include "hasten/machine/model_folder.h"
#include "hasten/metrics/classification.h"
#include "hasten/tokenizers/tokenizer.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/corpus.h"
#include "trainer/data_files.h"
#include "trainer/task_files.h"

namespace hasten {
namespace {

class CausalLmFiles : public TaskData {
 public:
  explicit CausalLmFiles(const TrainOptions& options) : options_(options) {
    if (is_text_file(options.data)) train_texts_ = read_corpus(options.data, options.text_column);
    if (is_text_file(options.eval_data))
      eval_texts_ = read_corpus(options.eval_data, options.text_column);
    if (!train_texts_.empty() || !eval_texts_.empty())
      tokenizer_ = Tokenizer::from_pretrained(tokenizer_folder(options));
  }

  ModelOptions model_options() const override {
    return model_options_for(Task::causal_lm, options_);
  }
  TrainerDataset train(const PreTrainedModel& model) const override {
    return train_texts_.empty() ? dataset_from_ids(options_.data, model)
                                : dataset_from_texts(train_texts_, options_.data, model);
  }
  TrainerDataset eval(const PreTrainedModel& model) const override {
    return eval_texts_.empty() ? dataset_from_ids(options_.eval_data, model)
                               : dataset_from_texts(eval_texts_, options_.eval_data, model);
  }
  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel&) const override {
    return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<Perplexity>()});
  }
  std::vector<std::filesystem::path> tokenizer_files() const override {
    return tokenizer_files_in(model_folder(options_.model));
  }

 private:
  // Returns the ids as their own labels, except for masked ids.
  static at::Tensor own_labels(const TensorDict& tensors) {
    const at::Tensor ids = tensors.at("input_ids").to(at::kLong);
    const auto mask = tensors.find("attention_mask");
    return mask == tensors.end() ? ids.clone() : ids.masked_fill(mask->second.eq(0), kIgnoredLabel);
  }

  TrainerDataset dataset_from_ids(const std::string& file, const PreTrainedModel& model) const {
    if (file.empty()) return TrainerDataset();
    if (is_arrow_data(file)) return dataset_from_rows(file, model);
    const ColumnDataset columns = open_columns(file, options_, model);
    check_rows(columns, model, file);
    TensorDict tensors = columns.columns();
    const bool has_labels = file != kDummyData && tensors.count("labels") > 0;
    tensors["labels"] =
        has_labels ? token_labels(columns, model.vocab_size(), file) : own_labels(tensors);
    return TrainerDataset(ColumnDataset(std::move(tensors)));
  }

  TrainerDataset dataset_from_rows(const std::string& file, const PreTrainedModel& model) const {
    const ArrowRows rows(file, "labels");
    rows.check(model);
    if (!rows.has_labels()) return TrainerDataset(rows, collator(model));
    rows.check_token_labels(model.vocab_size());
    return TrainerDataset(rows, DataCollatorForTokenClassification{});
  }

  // Every text ends with the tokenizer's end token, so that the model learns where texts end.
  void append_end_token(Encoding& text) const {
    const auto end = tokenizer_->eos_id();
    if (end && (text.input_ids.empty() || text.input_ids.back() != *end))
      text.input_ids.push_back(*end);
  }

  TrainerDataset dataset_from_texts(const std::vector<std::string>& texts, const std::string& file,
                                    const PreTrainedModel& model) const {
    const std::int64_t length = max_row_length(options_, model);
    std::vector<Encoding> encoded = tokenizer_->encode_batch(texts, {}, at::get_num_threads());
    for (Encoding& text : encoded) {
      append_end_token(text);
      const bool is_long = text.input_ids.size() > static_cast<std::size_t>(length);
      if (options_.line_by_line && is_long) text.input_ids.resize(static_cast<std::size_t>(length));
    }
    TokenDataset rows = options_.line_by_line ? one_row_per_text(encoded, file)
                                              : rows_of_length(encoded, length, file);
    check_ids(rows, model.vocab_size(), file);
    return TrainerDataset(std::move(rows), collator(model));
  }

  // Pads rows to the longest one of a batch. The padding has no labels, so any id of the model will
  // do.
  DataCollatorForLanguageModeling collator(const PreTrainedModel& model) const {
    DataCollatorForLanguageModeling out{.mlm = false};
    const std::int64_t id = tokenizer_ ? tokenizer_->pad_id().value_or(0) : 0;
    if (id < model.vocab_size()) out.vocabulary.pad_token_id = id;
    return out;
  }

  TrainOptions options_;
  std::vector<std::string> train_texts_, eval_texts_;  // empty if the file has ids
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<TaskData> read_causal_lm_files(const TrainOptions& options) {
  return std::make_unique<CausalLmFiles>(options);
}

}  // namespace hasten
