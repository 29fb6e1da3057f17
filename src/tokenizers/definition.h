// File: tokenizers/definition.h
// Reads the files of a tokenizer into a Definition (state.h).
//
//   Definition definition = definition_from_json(folder / "tokenizer.json");
//   apply_config(read_config(folder), definition.options);
//
// Thread rule: the functions only read files; any thread. They throw IoError and DataError, with
// the codes tokenizers.bad-json, wrong-type, missing-key, unknown-model, unknown-normalizer,
// unknown-pre-tokenizer, unknown-post-processor, unknown-decoder, unknown-version, bad-vocabulary,
// bad-added-token, bad-template, missing-token; definition_from_vocab also throws UsageError
// tokenizers.bad-options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/json_fields.h"
#include "tokenizers/state.h"

namespace hasten::tokenizers {

// The largest id that a vocabulary may have. The size of the vocabulary is at most one more.
inline constexpr std::int64_t kMaxTokenId = std::numeric_limits<std::int32_t>::max() - 1;

// The content of tokenizer_config.json and special_tokens_map.json. An unset member means that
// neither file has a value for it.
struct Config {
  std::optional<bool> do_lower_case;
  std::optional<std::optional<bool>> strip_accents;  // the inner one is empty for null
  std::optional<bool> tokenize_chinese_chars;
  std::optional<std::string> unk_token, sep_token, pad_token, cls_token, mask_token;
  std::optional<std::string> bos_token, eos_token;
  std::vector<std::string> extra_special_tokens;
  std::optional<std::int64_t> model_max_length;
  std::optional<Side> truncation_side, padding_side;
  std::vector<AddedToken> added_tokens;
};

// Reads these two files in the folder. Either may be missing.
Config read_config(const std::filesystem::path& folder);
// Overwrites the options that `config` sets.
void apply_config(const Config& config, TokenizerOptions& options);

Definition definition_from_json(const std::filesystem::path& file);
Definition definition_from_vocab(const std::filesystem::path& file,
                                 const TokenizerOptions& options);

// Reads a token of tokenizer.json's added_tokens, or of tokenizer_config.json's
// added_tokens_decoder. Flags may be missing only in the latter. They then have the defaults of
// AddedToken in the Python package tokenizers. The id of the result is -1.
enum class MissingFlags { error, defaults };
AddedToken read_added_token(const Fields& fields, MissingFlags missing);
// Gives each added token the id of its text in the vocabulary, or the next free id after the
// vocabulary. A token that already has an id (not -1) must have the same one. Throws DataError
// tokenizers.bad-added-token with a message that begins with `where`.
void assign_added_token_ids(const std::vector<std::string>& vocabulary, const std::string& where,
                            std::vector<AddedToken>& tokens);
// Does the same for a vocabulary of `size` tokens. `find` returns the id of a token, or -1.
void assign_added_token_ids(const std::function<std::int32_t(const std::string&)>& find,
                            std::size_t size, const std::string& where,
                            std::vector<AddedToken>& tokens);

// The functions below read parts of tokenizer.json that every kind of tokenizer has.
//
// Reads the added tokens. Their ids are not checked.
std::vector<AddedToken> read_added_tokens(const Fields& root);
// Reads the truncation and padding, and the sides and the padding token that they name.
void read_stored_settings(const Fields& root, Definition& definition);
// Read the post-processors TemplateProcessing and BertProcessing.
Templates read_template_processing(const Fields& fields);
Templates read_bert_processing(const Fields& fields);
// Reads a token and its id, such as ["[SEP]", 102].
std::pair<std::string, std::int32_t> read_token_and_id(const Fields& fields, const char* key);

}  // namespace hasten::tokenizers
