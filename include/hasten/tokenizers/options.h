// File: hasten/tokenizers/options.h
// How a tokenizer reads text, and what may be asked of one encoding, padding or decoding. The names
// are those of tokenizer_config.json and of Transformers.
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

// A token that is looked for in the text itself, before words are made of it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no letter, digit or mark touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // found in the normalized text, by its own normalized form
  bool special = false;      // left out by DecodeOptions::skip_special_tokens
};

// What a folder of a tokenizer says in all its files.
struct TokenizerOptions {
  bool do_lower_case = true;
  std::optional<bool> strip_accents;  // unset: as do_lower_case
  bool tokenize_chinese_chars = true;
  bool clean_text = true;
  std::string unk_token = "[UNK]";
  std::string sep_token = "[SEP]";
  std::string pad_token = "[PAD]";
  std::string cls_token = "[CLS]";
  std::string mask_token = "[MASK]";
  std::string continuing_subword_prefix = "##";
  std::int64_t max_input_chars_per_word = 100;  // a longer word is unknown
  std::int64_t model_max_length = 0;            // 0: not said
  Side truncation_side = Side::right;           // the end that is cut off
  Side padding_side = Side::right;
  // Tokens to be found in the text besides the five above. Those not in the vocabulary take the ids
  // after it, in order.
  std::vector<AddedToken> added_tokens;
};

enum class Truncation {
  none,
  longest_first,  // the longer of two texts is cut, or both to halves of the room
  only_first,
  only_second,
};

struct EncodeOptions {
  bool add_special_tokens = true;  // [CLS] and [SEP], as the post-processor says
  Truncation truncation = Truncation::none;
  std::int64_t max_length =
      0;  // of the whole, special tokens included; 0: model_max_length. Unused without truncation
  std::optional<Side> truncation_side;  // unset: the tokenizer's
  bool offsets = false;                 // fill Encoding::offsets and word_ids too
};

struct PadOptions {
  std::int64_t length = 0;       // 0: the longest row
  std::int64_t multiple_of = 0;  // rounds that length up; 0: no
  std::optional<Side>
      side;  // where the padding goes; unset: the tokenizer's (pad() without one: right)
  std::optional<std::int32_t> pad_id;  // unset: the tokenizer's (pad() without one: 0)
  std::int32_t pad_type_id = 0;
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  // Remove blanks before punctuation and contractions in the whole text; the decoder in
  // tokenizer.json may say to do so in each token already.
  bool clean_up_tokenization_spaces = false;
};

}  // namespace hasten
