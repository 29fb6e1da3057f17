#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/tagged_words.h"
#include "hasten/machine/model_folder.h"
#include "hasten/metrics/classification.h"
#include "hasten/metrics/entities.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/data_files.h"
#include "trainer/task_files.h"
#include "trainer/text_labels.h"

namespace hasten {
namespace {

// One of the two data files: words with tags, columns of tensors, rows of ids, dummy rows, or none.
struct TagFile {
  std::string name;
  bool needs_tags = true;
  std::optional<TaggedWords> words;
};

// Returns the labels of a model that has tags as classes. A model with one label was trained for a
// different task.
ConfiguredLabels configured_tags(const std::string& model) {
  ConfiguredLabels configured = configured_labels(model);
  if (configured.count < 2) configured = {.count = 2, .names = {}, .problem_type = {}};
  configured.problem_type.clear();
  return configured;
}

// Gives each word's tag to its first token.
std::vector<std::int32_t> labels_of_tokens(const Encoding& row, const std::int64_t* tags) {
  std::vector<std::int32_t> labels(row.size(), kIgnoredLabel);
  std::int32_t previous = -1;
  for (std::size_t token = 0; token < row.size(); ++token) {
    const std::int32_t word = row.word_ids[token];
    if (word >= 0 && word != previous) labels[token] = static_cast<std::int32_t>(tags[word]);
    previous = word;
  }
  return labels;
}

class TokenClassificationFiles : public TaskData {
 public:
  TokenClassificationFiles(const TrainOptions& options, EvalLabels eval_labels)
      : options_(options) {
    if (is_text_file(options.data) || is_text_file(options.eval_data))
      tokenizer_.emplace(tokenizer_folder(options));
    eval_.needs_tags = eval_labels == EvalLabels::required;
    read(train_, options.data);
    read(eval_, options.eval_data);
    if (train_.words) {
      tags_ = resolve(train_, resolve_training_labels);
    } else if (eval_.words && eval_.words->has_tags()) {
      eval_tags_ = resolve(eval_, resolve_evaluation_labels);
    }
  }

  ModelOptions model_options() const override {
    ModelOptions out = model_options_for(Task::token_classification, options_);
    if (tags_) {
      out.labels = tags_->classes;
    } else if (has_arrow_column(options_.data, "input_ids") && !options_.num_labels) {
      out.labels = ArrowRows(options_.data, options_.label_column).class_names();
    }
    return out;
  }

  TrainerDataset train(const PreTrainedModel& model) const override {
    return dataset(train_, model);
  }
  TrainerDataset eval(const PreTrainedModel& model) const override { return dataset(eval_, model); }

  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel& model) const override {
    const std::vector<std::string> tags = names_of_tags();
    if (are_entity_tags(tags) && static_cast<std::int64_t>(tags.size()) == model.num_labels())
      return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<EntityScores>(tags)});
    return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<PrecisionRecallF1>(
                                                              model.num_labels(), Average::macro)});
  }

  std::vector<std::filesystem::path> tokenizer_files() const override {
    return tokenizer_files_in(model_folder(options_.model));
  }

 private:
  // Returns the names of the tags by id, from the data or the model's configuration. Empty if they
  // are unknown.
  std::vector<std::string> names_of_tags() const {
    if (tags_) return tags_->classes;
    return eval_tags_ ? eval_tags_->classes : configured_tags(options_.model).names;
  }

  void read(TagFile& file, const std::string& name) const {
    file.name = name;
    if (!is_text_file(name)) return;
    file.words = read_tagged_words(name, {.words_column = options_.text_column,
                                          .tags_column = options_.label_column,
                                          .tags_required = file.needs_tags});
  }

  // Returns the meaning of the tags, which are classes even if they are numbers.
  template <class Resolve>
  TextLabels resolve(const TagFile& file, Resolve resolve_labels) const {
    const TextTable& table = file.words->tags();
    const auto fail = [&](const char* got) {
      throw DataError("train.labels",
                      {.what = table.file() + ", column \"" + options_.label_column + "\"",
                       .got = got,
                       .expected = "at least two tags, which are names or whole numbers"});
    };
    if (options_.num_labels == 1) fail("one tag, as --num_labels says");
    TextLabels found = resolve_labels(table, options_.label_column, options_.num_labels,
                                      configured_tags(options_.model));
    if (found.regression) fail("numbers with fractions");
    return found;
  }

  TrainerDataset dataset(const TagFile& file, const PreTrainedModel& model) const {
    if (file.name.empty()) return TrainerDataset();
    if (is_arrow_data(file.name) && !file.words) return dataset_from_rows(file, model);
    return file.words ? dataset_from_words(file, model) : dataset_from_columns(file, model);
  }

  TrainerDataset dataset_from_words(const TagFile& file, const PreTrainedModel& model) const {
    const TaggedWords& words = *file.words;
    const EncodeOptions encode{.truncation = Truncation::longest_first,
                               .max_length = max_row_length(options_, model)};
    at::Tensor labels;
    if (words.has_tags())
      labels = (tags_ ? *tags_ : *eval_tags_).encode(words.tags(), options_.label_column);
    TokenDataset tokens;
    for (std::int64_t row = 0; row < words.rows(); ++row) {
      const Encoding encoding = tokenizer_->encode_words(words.words(row), encode);
      std::vector<std::int32_t> of_tokens;
      if (labels.defined())
        of_tokens = labels_of_tokens(encoding,
                                     labels.const_data_ptr<std::int64_t>() + words.first_word(row));
      tokens.push_back(encoding.input_ids, encoding.token_type_ids, of_tokens);
    }
    check_ids(tokens, model.vocab_size(), file.name);
    if (labels.defined()) check_labels(tokens, model.num_labels(), file.name);
    return TrainerDataset(std::move(tokens), DataCollatorForTokenClassification{
                                                 .pad_token_id = padding_id(*tokenizer_, model)});
  }

  TrainerDataset dataset_from_rows(const TagFile& file, const PreTrainedModel& model) const {
    ArrowRows rows(file.name, options_.label_column);
    rows.check(model);
    if (file.needs_tags || rows.has_labels()) rows.check_token_labels(model.num_labels());
    return TrainerDataset(std::move(rows), DataCollatorForTokenClassification{});
  }

  TrainerDataset dataset_from_columns(const TagFile& file, const PreTrainedModel& model) const {
    const ColumnDataset columns = open_columns(file.name, options_, model);
    check_rows(columns, model, file.name);
    TensorDict tensors = columns.columns();
    if (file.name == kDummyData) {
      tensors["labels"] = tensors.at("input_ids").remainder(model.num_labels());
    } else if (file.needs_tags || tensors.count("labels") > 0) {
      tensors["labels"] = token_labels(columns, model.num_labels(), file.name);
    }
    return TrainerDataset(ColumnDataset(std::move(tensors)));
  }

  TrainOptions options_;
  std::optional<RowTokenizer> tokenizer_;
  TagFile train_, eval_;
  std::optional<TextLabels> tags_;  // the labels of the training data, if it has words
  std::optional<TextLabels>
      eval_tags_;  // the labels of the evaluation data, if only it has words with tags
};

}  // namespace

std::unique_ptr<TaskData> read_token_classification_files(const TrainOptions& options,
                                                          EvalLabels eval_labels) {
  return std::make_unique<TokenClassificationFiles>(options, eval_labels);
}

}  // namespace hasten
