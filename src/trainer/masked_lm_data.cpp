#include "hasten/trainer/masked_lm_data.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/language_modeling.h"
#include "hasten/data/text_reader.h"
#include "hasten/machine/model_folder.h"
#include "hasten/metrics/classification.h"
#include "trainer/data_files.h"

namespace hasten {
namespace {

bool has_lines(const std::string& file) { return ends_with(lower(file), ".txt"); }

// Returns the texts of a file that are not blank.
std::vector<std::string> read_corpus(const std::string& file, const std::string& column) {
  const TextTable table = has_lines(file) ? read_text_lines(file, column)
                                          : read_text_table(file, {.columns = {column}});
  std::vector<std::string> texts = table.column(column);
  std::erase_if(texts, [](const std::string& text) { return trim(text).empty(); });
  if (!texts.empty()) return texts;
  throw DataError("data.empty", {.what = file + ", column \"" + column + "\"",
                                 .got = "blank texts",
                                 .expected = "at least one text"});
}

// Joins the rows, and cuts them into rows of `length` tokens. The rest at the end is left out.
TokenDataset rows_of_length(const std::vector<Encoding>& texts, std::int64_t length,
                            const std::string& file) {
  std::vector<std::int32_t> ids;
  for (const Encoding& text : texts)
    ids.insert(ids.end(), text.input_ids.begin(), text.input_ids.end());
  const auto size = static_cast<std::size_t>(length);
  if (ids.size() < size) {
    throw DataError("data.empty", {.what = file,
                                   .got = str(ids.size(), " tokens"),
                                   .expected = str("at least max_length, ", length),
                                   .hint = "use --line_by_line, or a smaller --max_length"});
  }
  TokenDataset rows;
  for (std::size_t at = 0; at + size <= ids.size(); at += size)
    rows.push_back(std::span<const std::int32_t>(ids).subspan(at, size));
  return rows;
}

// Returns the facts for masking. The masks and random tokens must be ids of the model.
MaskingVocabulary masking_vocabulary(const BertTokenizer& tokenizer, const PreTrainedModel& model) {
  MaskingVocabulary vocabulary(tokenizer);
  if (vocabulary.mask_token_id >= model.vocab_size()) {
    throw DataError("data.ids",
                    {.what = "the id of the mask token",
                     .got = str(vocabulary.mask_token_id),
                     .expected = str("0 to ", model.vocab_size() - 1, ", the ids of the model"),
                     .hint = "check that the tokenizer belongs to this model"});
  }
  vocabulary.size = std::min(vocabulary.size, model.vocab_size());
  return vocabulary;
}

}  // namespace

struct MaskedLmFiles::Impl {
  TrainOptions options;
  std::optional<BertTokenizer> tokenizer;
  std::vector<std::string> train_texts, eval_texts;  // empty: the file has none
  bool train_is_masked = false, eval_is_masked = false;

  void read(const std::string& file, std::vector<std::string>& texts, bool& is_masked) const {
    if (is_text_file(file)) {
      texts = read_corpus(file, options.text_column);
    } else if (!file.empty() && file != kDummyData) {
      is_masked = load_columns(file).columns().count("labels") > 0;
    }
  }

  bool needs_tokenizer() const {
    const auto needs = [](const std::string& file, bool is_masked) {
      return !file.empty() && file != kDummyData && !is_masked;
    };
    return needs(options.data, train_is_masked) || needs(options.eval_data, eval_is_masked);
  }

  DataCollatorForLanguageModeling collator(const PreTrainedModel& model) const {
    DataCollatorForLanguageModeling out{.whole_word_mask = options.whole_word_mask,
                                        .mlm_probability = options.mlm_probability};
    if (tokenizer) {
      out.vocabulary = masking_vocabulary(*tokenizer, model);
    } else {
      // Dummy ids have no meaning, so there is no mask token.
      out.vocabulary.size = model.vocab_size();
      out.vocabulary.mask_token_id = 0;
      out.mask_replace_prob = out.random_replace_prob = 0;
      out.whole_word_mask = false;
    }
    return out;
  }

  TrainerDataset dataset(const std::string& file, const std::vector<std::string>& texts,
                         bool is_masked, const PreTrainedModel& model) const {
    if (file.empty()) return TrainerDataset();
    return texts.empty() ? of_columns(file, is_masked, model) : of_texts(file, texts, model);
  }

  TrainerDataset of_texts(const std::string& file, const std::vector<std::string>& texts,
                          const PreTrainedModel& model) const {
    const std::int64_t length = longest_row(options, model);
    const bool cut = options.line_by_line;
    const EncodeOptions encode{.truncation = cut ? Truncation::longest_first : Truncation::none,
                               .max_length = cut ? length : 0};
    const auto encoded = tokenizer->encode_batch(texts, encode, at::get_num_threads());
    TokenDataset rows;
    if (cut) {
      for (const Encoding& row : encoded) rows.push_back(row.input_ids);
    } else {
      rows = rows_of_length(encoded, length, file);
    }
    check_ids(rows, model.vocab_size(), file);
    return TrainerDataset(std::move(rows), collator(model));
  }

  TrainerDataset of_columns(const std::string& file, bool is_masked,
                            const PreTrainedModel& model) const {
    const ColumnDataset columns = open_columns(file, options, model);
    check_rows(columns, model, file);
    TensorDict tensors = columns.columns();
    if (is_masked) {
      tensors["labels"] = token_labels(columns, model.vocab_size(), file);
      return TrainerDataset(ColumnDataset(std::move(tensors)));
    }
    tensors.erase("labels");  // those of dummy rows
    return TrainerDataset(ColumnDataset(std::move(tensors)), collator(model));
  }
};

MaskedLmFiles::MaskedLmFiles(const TrainOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->read(options.data, impl_->train_texts, impl_->train_is_masked);
  impl_->read(options.eval_data, impl_->eval_texts, impl_->eval_is_masked);
  if (impl_->needs_tokenizer()) impl_->tokenizer = tokenizer_for(options);
}

MaskedLmFiles::~MaskedLmFiles() = default;

ModelOptions MaskedLmFiles::model_options() const {
  return model_options_for(Task::masked_lm, impl_->options);
}

TrainerDataset MaskedLmFiles::train(const PreTrainedModel& model) const {
  return impl_->dataset(impl_->options.data, impl_->train_texts, impl_->train_is_masked, model);
}

TrainerDataset MaskedLmFiles::eval(const PreTrainedModel& model) const {
  return impl_->dataset(impl_->options.eval_data, impl_->eval_texts, impl_->eval_is_masked, model);
}

std::shared_ptr<EvalMetric> MaskedLmFiles::metrics(const PreTrainedModel&) const {
  return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<Perplexity>()});
}

std::vector<std::filesystem::path> MaskedLmFiles::tokenizer_files() const {
  return tokenizer_files_in(model_folder(impl_->options.model));
}

}  // namespace hasten
