// File: hasten/data/language_modeling.h
// A collator for masked and causal language models.
//
//   DataCollatorForLanguageModeling masked{.vocabulary = MaskingVocabulary(tokenizer),
//                                          .mlm_probability = 0.15};
//   DataCollatorForLanguageModeling causal{.mlm = false};
//   auto loader = make_loader(tokens, {.batch_size = 8, .shuffle = true}, masked);
//
// Rows are padded as by DataCollatorWithPadding, and the batch has `labels` [rows, length]. For a
// masked model, each token except special tokens and padding is selected with mlm_probability;
// `labels` has the ids of the selected tokens and -100 elsewhere. A selected token is replaced by
// the mask token with mask_replace_prob, by a random token of the vocabulary with
// random_replace_prob, and otherwise stays. For a causal model, `labels` are the ids, with -100 in
// padding; models shift them.
//
// The choices for a row depend only on its RowContext (hasten/data/context.h): the seed of the
// loader, the epoch and the number of the row. So a row is masked differently in each epoch, but in
// the same way with any batch size, number of workers and number of processes, and after resuming.
//
// Throws DataError "data.collate", and UsageError "data.option" for probabilities outside of [0, 1]
// and for a vocabulary without a mask token. Thread rule: values; calls change nothing and may run
// on several threads.
// Source: DataCollatorForLanguageModeling of transformers 5.23, with padding on the right. It
// differs in three ways. Its random numbers are different. Words are the tokenizer's words, whereas
// transformers counts punctuation that touches a word as a part of it. In causal labels,
// transformers ignores every pad_token_id, even one that ends a text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/collator.h"
#include "hasten/data/context.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "hasten/tokenizers/tokenizer.h"

namespace hasten {

// The information about a vocabulary that masking needs.
struct HASTEN_API MaskingVocabulary {
  MaskingVocabulary() = default;
  explicit MaskingVocabulary(const BertTokenizer& tokenizer);
  // Leaves continues_word empty, because only BERT's tokens say whether they continue a word.
  explicit MaskingVocabulary(const Tokenizer& tokenizer);

  std::int64_t size = 0;            // Random token ids are below it.
  std::int64_t mask_token_id = -1;  // -1 if there is none.
  std::int64_t pad_token_id = 0;
  std::vector<std::int64_t> special_ids = {};  // Ascending.
  // For each id, true if the token continues a word ("##ing"). Used only to mask whole words in
  // rows without `word_ids`.
  std::vector<bool> continues_word = {};
};

struct HASTEN_API DataCollatorForLanguageModeling {
  MaskingVocabulary vocabulary = {};
  bool mlm = true;  // False for a causal model.
  // Selects whole words instead of single tokens, each with mlm_probability. All tokens of a
  // selected word become the mask token; the two probabilities below do not apply, as in
  // transformers.
  bool whole_word_mask = false;
  double mlm_probability = 0.15;
  double mask_replace_prob = 0.8;
  double random_replace_prob = 0.1;
  std::optional<std::int64_t> pad_to_multiple_of = std::nullopt;
  // Pads every batch to this length; a longer row is an error. If unset, pads to the longest row.
  std::optional<std::int64_t> max_length = std::nullopt;

  TensorDict operator()(std::span<const TokenRow> rows, std::span<const RowContext> contexts) const;
  // Rows may have `special_tokens_mask` [tokens], which replaces the vocabulary's special_ids, and
  // `word_ids` [tokens], the number of each token's word. The batch has neither column.
  TensorDict operator()(std::span<const TensorDict> rows,
                        std::span<const RowContext> contexts) const;
};

}  // namespace hasten
