// File: hasten/tokenizers/detail/options.h
// Options of a tokenizer, and of one encoding, padding or decoding. The names match
// tokenizer_config.json and Transformers.
//
//   EncodeOptions options{.truncation = Truncation::longest_first, .max_length = 128};
//
// Thread rule: plain values.
// Source: Hugging Face Transformers 5 (BertTokenizer) and tokenizers 0.23.3 (AddedToken,
// truncation, padding).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

enum class Side { left, right };

// A token that is matched in the text before it is split into words.
struct AddedToken {
  std::int32_t id = 0;
  std::string content = {};
  bool single_word = false;  // Matched only if no letter, digit or mark is next to it.
  bool lstrip = false;       // Includes white space before it.
  bool rstrip = false;       // Includes white space after it.
  bool normalized = false;   // Matched by its normalized form in normalized text.
  bool special = false;      // Skipped by DecodeOptions::skip_special_tokens.
};

// The settings of a tokenizer, from all files of its folder.
struct TokenizerOptions {
  bool do_lower_case = true;
  std::optional<bool> strip_accents = {};  // Equal to do_lower_case if unset.
  bool tokenize_chinese_chars = true;
  bool clean_text = true;
  std::string unk_token = "[UNK]";
  std::string sep_token = "[SEP]";
  std::string pad_token = "[PAD]";
  std::string cls_token = "[CLS]";
  std::string mask_token = "[MASK]";
  std::string continuing_subword_prefix = "##";
  std::int64_t max_input_chars_per_word = 100;  // A longer word becomes unk_token.
  std::int64_t model_max_length = 0;            // In tokens; 0 if unknown.
  Side truncation_side = Side::right;           // The side from which tokens are removed.
  Side padding_side = Side::right;
  // Further tokens to be matched in the text. Those that are not in the vocabulary get the ids
  // after it, in order.
  std::vector<AddedToken> added_tokens = {};
};

// How rows that are longer than max_length are shortened.
enum class Truncation {
  none,
  longest_first,  // The longer of two texts, or both to half of the available length.
  only_first,
  only_second,
};

struct EncodeOptions {
  bool add_special_tokens = true;  // [CLS] and [SEP], by the post-processor.
  Truncation truncation = Truncation::none;
  // The largest number of tokens in a row, including special tokens; 0 means model_max_length. Used
  // only with truncation.
  std::int64_t max_length = 0;
  std::optional<Side> truncation_side = {};  // The tokenizer's if unset.
  bool offsets = false;                      // Fill Encoding::offsets and Encoding::word_ids.
};

struct PadOptions {
  std::int64_t length = 0;       // In tokens; 0 means the length of the longest row.
  std::int64_t multiple_of = 0;  // Rounds the length up to a multiple; 0 means no rounding.
  // The side to pad. If unset: the tokenizer's, or right for the function pad().
  std::optional<Side> side = {};
  // If unset: the tokenizer's, or 0 for the function pad().
  std::optional<std::int32_t> pad_id = {};
  std::int32_t pad_type_id = 0;
};

// The truncation and padding of tokenizer.json.
struct StoredSettings {
  EncodeOptions encode = {};
  std::optional<PadOptions> padding = {};
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  // Removes blanks before punctuation and contractions in the whole text. The decoder of
  // tokenizer.json may do so in each token already.
  bool clean_up_tokenization_spaces = false;
};

}  // namespace hasten
