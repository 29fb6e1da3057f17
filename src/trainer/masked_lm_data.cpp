#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/language_modeling.h"
#include "hasten/data/views.h"
#include "hasten/machine/model_folder.h"
#include "hasten/metrics/classification.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/corpus.h"
#include "trainer/data_files.h"
#include "trainer/task_files.h"

namespace hasten {
namespace {

// Returns the vocabulary for masking. The mask token, random tokens and padding must be ids of the
// model.
MaskingVocabulary masking_vocabulary(const RowTokenizer& tokenizer, const PreTrainedModel& model) {
  MaskingVocabulary vocabulary = tokenizer.masking_vocabulary();
  if (vocabulary.mask_token_id >= model.vocab_size()) {
    throw DataError("data.ids",
                    {.what = "the id of the mask token",
                     .got = str(vocabulary.mask_token_id),
                     .expected = str("0 to ", model.vocab_size() - 1, ", the ids of the model"),
                     .hint = "check that the tokenizer belongs to this model"});
  }
  vocabulary.size = std::min(vocabulary.size, model.vocab_size());
  // The model does not attend to padding, so any of its ids will do.
  if (vocabulary.pad_token_id >= model.vocab_size()) vocabulary.pad_token_id = 0;
  return vocabulary;
}

// Returns a row with the numbers of its words, which rows_of_texts keeps as the labels of its
// tokens.
TensorDict with_words(const TokenRow& row) {
  const auto tensor = [](TokenDataset::Ids values) {
    return at::tensor(at::ArrayRef<std::int32_t>(values.data(), values.size()), at::kInt);
  };
  return {{"input_ids", tensor(row.input_ids)}, {"word_ids", tensor(row.token_labels)}};
}

// Masking whole words needs the numbers of the words, or tokens that show that they continue a
// word.
void require_words(const DataCollatorForLanguageModeling& collator, bool has_words,
                   const std::string& source) {
  if (!collator.whole_word_mask || has_words || !collator.vocabulary.continues_word.empty()) return;
  throw DataError("data.words", {.what = source + ": --whole_word_mask for rows of ids",
                                 .got = "neither word_ids nor BERT's tokenizer",
                                 .expected = "one of them, which says where words begin",
                                 .hint = "pass texts, or leave out --whole_word_mask"});
}

// One of the two data files: texts, columns of tensors, rows of ids, dummy rows, or none.
struct CorpusFile {
  std::string name;
  std::vector<std::string> texts;
  std::optional<ArrowRows> rows;
  bool is_masked = false;  // it has labels already

  bool needs_tokenizer() const { return !name.empty() && name != kDummyData && !is_masked; }
};

class MaskedLmFiles : public TaskData {
 public:
  explicit MaskedLmFiles(const TrainOptions& options)
      : options_(options), train_(read(options.data)), eval_(read(options.eval_data)) {
    if (train_.needs_tokenizer() || eval_.needs_tokenizer())
      tokenizer_.emplace(tokenizer_folder(options));
  }

  ModelOptions model_options() const override {
    return model_options_for(Task::masked_lm, options_);
  }
  TrainerDataset train(const PreTrainedModel& model) const override {
    return dataset(train_, model);
  }
  TrainerDataset eval(const PreTrainedModel& model) const override { return dataset(eval_, model); }

  std::shared_ptr<EvalMetric> metrics(const PreTrainedModel&) const override {
    return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<Perplexity>()});
  }

  std::vector<std::filesystem::path> tokenizer_files() const override {
    return tokenizer_files_in(model_folder(options_.model));
  }

 private:
  CorpusFile read(const std::string& name) const {
    CorpusFile file{.name = name};
    if (is_text_file(name)) {
      file.texts = read_corpus(name, options_.text_column);
    } else if (is_arrow_data(name)) {
      file.rows.emplace(name, "labels");
      file.is_masked = file.rows->has_labels();
    } else if (!name.empty() && name != kDummyData) {
      file.is_masked = load_columns(name).columns().count("labels") > 0;
    }
    return file;
  }

  DataCollatorForLanguageModeling collator(const PreTrainedModel& model) const {
    DataCollatorForLanguageModeling out{.whole_word_mask = options_.whole_word_mask,
                                        .mlm_probability = options_.mlm_probability};
    if (tokenizer_) {
      out.vocabulary = masking_vocabulary(*tokenizer_, model);
    } else {
      // Dummy ids have no meaning, so there is no mask token.
      out.vocabulary.size = model.vocab_size();
      out.vocabulary.mask_token_id = 0;
      out.mask_replace_prob = out.random_replace_prob = 0;
      out.whole_word_mask = false;
    }
    return out;
  }

  TrainerDataset dataset(const CorpusFile& file, const PreTrainedModel& model) const {
    if (file.name.empty()) return TrainerDataset();
    if (file.rows) return dataset_from_rows(file, model);
    return file.texts.empty() ? dataset_from_columns(file, model) : dataset_from_texts(file, model);
  }

  // Returns the tokens of the texts, and the numbers of their words as labels if words are masked.
  TokenDataset rows_of_texts(const CorpusFile& file, std::int64_t length) const {
    const bool cut = options_.line_by_line;
    const EncodeOptions encode{.truncation = cut ? Truncation::longest_first : Truncation::none,
                               .max_length = cut ? length : 0,
                               .offsets = options_.whole_word_mask};
    const auto encoded = tokenizer_->encode_batch(file.texts, encode, at::get_num_threads());
    return cut ? one_row_per_text(encoded, file.name) : rows_of_length(encoded, length, file.name);
  }

  TrainerDataset dataset_from_texts(const CorpusFile& file, const PreTrainedModel& model) const {
    const DataCollatorForLanguageModeling masking = collator(model);
    TokenDataset rows = rows_of_texts(file, max_row_length(options_, model));
    check_ids(rows, model.vocab_size(), file.name);
    if (!options_.whole_word_mask) return TrainerDataset(std::move(rows), masking);
    return TrainerDataset(map_rows(std::move(rows), with_words), masking);
  }

  TrainerDataset dataset_from_rows(const CorpusFile& file, const PreTrainedModel& model) const {
    file.rows->check(model);
    if (!file.is_masked) {
      const DataCollatorForLanguageModeling masking = collator(model);
      require_words(masking, false, file.name);
      return TrainerDataset(*file.rows, masking);
    }
    file.rows->check_token_labels(model.vocab_size());
    return TrainerDataset(*file.rows, DataCollatorForTokenClassification{});
  }

  TrainerDataset dataset_from_columns(const CorpusFile& file, const PreTrainedModel& model) const {
    const ColumnDataset columns = open_columns(file.name, options_, model);
    check_rows(columns, model, file.name);
    TensorDict tensors = columns.columns();
    if (file.is_masked) {
      tensors["labels"] = token_labels(columns, model.vocab_size(), file.name);
      return TrainerDataset(ColumnDataset(std::move(tensors)));
    }
    tensors.erase("labels");  // the labels of dummy rows
    const DataCollatorForLanguageModeling masking = collator(model);
    require_words(masking, tensors.contains("word_ids"), file.name);
    return TrainerDataset(ColumnDataset(std::move(tensors)), masking);
  }

  TrainOptions options_;
  CorpusFile train_, eval_;
  std::optional<RowTokenizer> tokenizer_;
};

}  // namespace

std::unique_ptr<TaskData> read_masked_lm_files(const TrainOptions& options) {
  return std::make_unique<MaskedLmFiles>(options);
}

}  // namespace hasten
