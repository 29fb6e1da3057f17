// File: tokenizers/definition.h
// Reading the files of a tokenizer into a Definition (state.h).
//
//   Definition definition = definition_from_json(folder / "tokenizer.json");
//   apply_config(read_config(folder), definition.options);
//
// Thread rule: reads files only. Throws IoError and DataError; the codes are tokenizers.bad-json,
// wrong-type, missing-key, unknown-model, unknown-normalizer, unknown-pre-tokenizer,
// unknown-post-processor, unknown-decoder, unknown-version, bad-vocabulary, bad-added-token,
// bad-template, missing-token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "json_fields.h"
#include "state.h"

namespace hasten::tokenizers {

// Of a vocabulary: one more is its size.
inline constexpr std::int64_t kLargestId = std::numeric_limits<std::int32_t>::max() - 1;

// What tokenizer_config.json and special_tokens_map.json say; unset: nothing.
struct Config {
  std::optional<bool> do_lower_case;
  std::optional<std::optional<bool>> strip_accents;  // null is something to say
  std::optional<bool> tokenize_chinese_chars;
  std::optional<std::string> unk_token, sep_token, pad_token, cls_token, mask_token;
  std::optional<std::int64_t> model_max_length;
  std::optional<Side> truncation_side, padding_side;
  std::vector<AddedToken> added_tokens;
};

// From whichever of the two files the folder has.
Config read_config(const std::filesystem::path& folder);
// Goes over what `options` says.
void apply_config(const Config& config, TokenizerOptions& options);

Definition definition_from_json(const std::filesystem::path& file);
Definition definition_from_vocab(const std::filesystem::path& file,
                                 const TokenizerOptions& options);

// One of the objects that tokenizer.json has in added_tokens, without its id.
AddedToken read_added_token(const Fields& fields);
// Gives each added token the id of its text in the vocabulary, or the next one after it. An id that
// a token has already must be that one; -1 is none.
void number_added_tokens(const std::vector<std::string>& vocabulary, const std::string& where,
                         std::vector<AddedToken>& tokens);

// Parts of tokenizer.json.
Templates read_post_processor(const Fields& root);
void read_stored_settings(const Fields& root, Definition& definition);

}  // namespace hasten::tokenizers
