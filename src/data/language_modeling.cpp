#include "hasten/data/language_modeling.h"

#include <ATen/ops/full_like.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/row_random.h"

namespace hasten {
namespace {

// Distinguishes the collator's random numbers from those that a dataset draws with the same key.
constexpr std::uint64_t kMaskingStream = 0x6d61736b696e67;

[[noreturn]] void fail_masking(const std::string& what, std::string got, std::string expected,
                               std::string hint = "") {
  throw UsageError("data.option", {.what = "DataCollatorForLanguageModeling: " + what,
                                   .got = std::move(got),
                                   .expected = std::move(expected),
                                   .hint = std::move(hint)});
}

void check_options(const DataCollatorForLanguageModeling& options) {
  const auto is_probability = [](double value) { return value >= 0 && value <= 1; };
  const std::pair<const char*, double> probabilities[] = {
      {"mlm_probability", options.mlm_probability},
      {"mask_replace_prob", options.mask_replace_prob},
      {"random_replace_prob", options.random_replace_prob},
      {"mask_replace_prob + random_replace_prob",
       options.mask_replace_prob + options.random_replace_prob}};
  for (const auto& [name, value] : probabilities) {
    if (!is_probability(value)) fail_masking(name, str(value), "0 to 1");
  }
  if (!options.mlm) {
    if (options.whole_word_mask) fail_masking("whole_word_mask", "mlm = false", "mlm = true");
    return;
  }
  if (options.vocabulary.mask_token_id < 0) {
    fail_masking("the vocabulary has no mask token", "", "",
                 "set vocabulary, or mlm = false for a causal model");
  }
  if (!options.whole_word_mask && options.random_replace_prob > 0 && options.vocabulary.size <= 0)
    fail_masking("vocabulary.size", str(options.vocabulary.size), "at least 1");
}

// One padded row of a batch while it is masked. Pointers are null if there is no such column.
struct MaskedRow {
  std::int64_t* ids;
  std::int64_t* labels;
  const std::int64_t* attention;
  const std::int64_t* special;
  const std::int64_t* words;
  std::int64_t length;
};

bool is_special(const MaskingVocabulary& vocabulary, const MaskedRow& row, std::int64_t token) {
  if (row.attention[token] == 0) return true;
  if (row.special != nullptr) return row.special[token] != 0;
  return std::binary_search(vocabulary.special_ids.begin(), vocabulary.special_ids.end(),
                            row.ids[token]);
}

// True if the token belongs to the same word as the one before it, which is not special.
bool continues_word(const MaskingVocabulary& vocabulary, const MaskedRow& row, std::int64_t token) {
  if (row.words != nullptr) return row.words[token] == row.words[token - 1];
  const auto id = static_cast<std::size_t>(row.ids[token]);
  return id < vocabulary.continues_word.size() && vocabulary.continues_word[id];
}

void mask_words(const DataCollatorForLanguageModeling& options, const MaskedRow& row,
                RowRandom random) {
  bool in_word = false, selected = false;
  for (std::int64_t token = 0; token < row.length; ++token) {
    if (is_special(options.vocabulary, row, token)) {
      in_word = false;
      continue;
    }
    if (!in_word || !continues_word(options.vocabulary, row, token))
      selected = random.uniform() < options.mlm_probability;
    in_word = true;
    if (selected) row.labels[token] = row.ids[token];
  }
  // The ids change last, because they show where words begin.
  for (std::int64_t token = 0; token < row.length; ++token) {
    if (row.labels[token] != kIgnoredLabel) row.ids[token] = options.vocabulary.mask_token_id;
  }
}

void mask_tokens(const DataCollatorForLanguageModeling& options, const MaskedRow& row,
                 RowRandom random) {
  for (std::int64_t token = 0; token < row.length; ++token) {
    if (is_special(options.vocabulary, row, token)) continue;
    if (random.uniform() >= options.mlm_probability) continue;
    row.labels[token] = row.ids[token];
    const double choice = random.uniform();
    if (choice < options.mask_replace_prob) {
      row.ids[token] = options.vocabulary.mask_token_id;
    } else if (choice < options.mask_replace_prob + options.random_replace_prob) {
      row.ids[token] = random.below(options.vocabulary.size);
    }
  }
}

void mask_batch(const DataCollatorForLanguageModeling& options, TensorDict& batch,
                std::span<const RowContext> contexts) {
  at::Tensor ids = batch.at("input_ids");
  if (static_cast<std::int64_t>(contexts.size()) != ids.size(0))
    fail_masking("contexts", str(contexts.size()), str(ids.size(0), ", one for each row"));
  at::Tensor labels = at::full_like(ids, kIgnoredLabel);
  const std::int64_t length = ids.size(1);
  const auto column = [&](const char* name) -> const std::int64_t* {
    const auto found = batch.find(name);
    return found == batch.end() ? nullptr : found->second.const_data_ptr<std::int64_t>();
  };
  MaskedRow row{.ids = ids.mutable_data_ptr<std::int64_t>(),
                .labels = labels.mutable_data_ptr<std::int64_t>(),
                .attention = column("attention_mask"),
                .special = column("special_tokens_mask"),
                .words = column("word_ids"),
                .length = length};
  if (options.whole_word_mask && row.words == nullptr && options.vocabulary.continues_word.empty())
    fail_masking("whole_word_mask", "rows without word_ids", "word_ids, or continues_word");
  for (const RowContext& context : contexts) {
    const RowRandom random(context.key() ^ kMaskingStream);
    if (options.whole_word_mask) {
      mask_words(options, row, random);
    } else {
      mask_tokens(options, row, random);
    }
    row.ids += length;
    row.labels += length;
    row.attention += length;
    if (row.special != nullptr) row.special += length;
    if (row.words != nullptr) row.words += length;
  }
  batch["labels"] = labels;
}

template <class Row>
TensorDict language_model_batch(const DataCollatorForLanguageModeling& options,
                                std::span<const Row> rows, std::span<const RowContext> contexts) {
  check_options(options);
  TensorDict batch = DataCollatorWithPadding{.pad_token_id = options.vocabulary.pad_token_id,
                                             .pad_to_multiple_of = options.pad_to_multiple_of,
                                             .max_length = options.max_length}(rows);
  if (options.mlm) {
    mask_batch(options, batch, contexts);
  } else {
    batch["labels"] =
        batch.at("input_ids").masked_fill(batch.at("attention_mask") == 0, kIgnoredLabel);
  }
  batch.erase("special_tokens_mask");
  batch.erase("word_ids");
  return batch;
}

}  // namespace

MaskingVocabulary::MaskingVocabulary(const BertTokenizer& tokenizer)
    : size(tokenizer.vocab_size()),
      mask_token_id(tokenizer.mask_id()),
      pad_token_id(tokenizer.pad_id()),
      special_ids({tokenizer.pad_id(), tokenizer.unk_id(), tokenizer.cls_id(), tokenizer.sep_id(),
                   tokenizer.mask_id()}) {
  for (const AddedToken& token : tokenizer.options().added_tokens) {
    if (token.special) special_ids.push_back(token.id);
  }
  std::sort(special_ids.begin(), special_ids.end());
  const std::string& prefix = tokenizer.options().continuing_subword_prefix;
  continues_word.resize(static_cast<std::size_t>(size));
  for (std::int64_t id = 0; id < size; ++id) {
    const auto token = tokenizer.id_to_token(static_cast<std::int32_t>(id));
    continues_word[static_cast<std::size_t>(id)] = token && !prefix.empty() &&
                                                   token->size() > prefix.size() &&
                                                   token->substr(0, prefix.size()) == prefix;
  }
}

MaskingVocabulary::MaskingVocabulary(const Tokenizer& tokenizer)
    : size(tokenizer.vocab_size()),
      mask_token_id(tokenizer.mask_id().value_or(-1)),
      pad_token_id(tokenizer.pad_id().value_or(0)) {  // no model attends to padding
  for (const std::int32_t id : tokenizer.special_ids()) special_ids.push_back(id);
}

TensorDict DataCollatorForLanguageModeling::operator()(std::span<const TokenRow> rows,
                                                       std::span<const RowContext> contexts) const {
  return language_model_batch(*this, rows, contexts);
}

TensorDict DataCollatorForLanguageModeling::operator()(std::span<const TensorDict> rows,
                                                       std::span<const RowContext> contexts) const {
  return language_model_batch(*this, rows, contexts);
}

}  // namespace hasten
