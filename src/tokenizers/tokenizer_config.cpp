// Reads tokenizer_config.json and special_tokens_map.json.
#include <algorithm>
#include <utility>

#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"

namespace hasten::tokenizers {
namespace {

// Returns the text of a token, which the files write as a string or as an object with "content".
std::string token_text(const Json& value, const std::string& where) {
  return value.is_object() ? Fields(value, where).text("content") : Fields::text_of(value, where);
}

void read_token(const Fields& fields, const char* key, std::optional<std::string>& token) {
  const Json* value = fields.find(key);
  if (value && !token) token = token_text(*value, fields.where() + "." + key);
}

void read_side(const Fields& fields, const char* key, std::optional<Side>& side) {
  if (fields.find(key))
    side = choose<Side>(fields, key, {{"right", Side::right}, {"left", Side::left}});
}

void read_flag(const Fields& fields, const char* key, std::optional<bool>& flag) {
  if (fields.find(key)) flag = fields.flag(key);
}

// A limit above the largest int32 becomes 0, which means no limit; Transformers writes 1e30 for
// that.
void read_max_length(const Fields& fields, Config& config) {
  const Json* value = fields.find("model_max_length");
  if (!value) return;
  const bool huge =
      value->is_number() &&
      value->get<double>() > static_cast<double>(std::numeric_limits<std::int32_t>::max());
  config.model_max_length =
      huge ? 0 : fields.integer("model_max_length", 1, std::numeric_limits<std::int32_t>::max());
}

bool has(const std::vector<AddedToken>& tokens, const std::string& content) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&content](const AddedToken& token) { return token.content == content; });
}

// Reads an id that is written as a string.
std::int32_t id_of_key(const std::string& key, const std::string& where) {
  const auto id = parse_number<std::int64_t>(key);
  return static_cast<std::int32_t>(
      Fields::integer_of(id ? Json(*id) : Json(key), 0, kMaxTokenId, where));
}

// Reads added_tokens_decoder: {"100": {"content": "[UNK]", "special": true, ...}, ...}.
void read_added_tokens(const Fields& fields, Config& config) {
  if (!fields.find("added_tokens_decoder")) return;
  const Fields tokens = fields.object("added_tokens_decoder");
  for (const auto& [key, value] : fields.at("added_tokens_decoder").items()) {
    const std::string where = str(tokens.where(), ".\"", key, "\"");
    AddedToken token = read_added_token(Fields(value, where), MissingFlags::defaults);
    token.id = id_of_key(key, where);
    config.added_tokens.push_back(std::move(token));
  }
  std::sort(config.added_tokens.begin(), config.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

// Reads further special tokens: a list of them, or an object with named ones.
void read_more_tokens(const Fields& fields, const char* key, Config& config) {
  const Json* value = fields.find(key);
  if (!value) return;
  if (!value->is_array() && !value->is_object()) fields.list(key);  // throws the type error
  for (const Json& item : *value) {
    std::string content = token_text(item, fields.where() + "." + key);
    config.extra_special_tokens.push_back(content);
    if (!has(config.added_tokens, content))
      config.added_tokens.push_back({.id = -1, .content = std::move(content), .special = true});
  }
}

void read_into(const std::filesystem::path& file, Config& config) {
  if (!std::filesystem::exists(file)) return;
  const Json json = parse_json(file);
  const Fields fields(json, file.string());
  read_flag(fields, "do_lower_case", config.do_lower_case);
  read_flag(fields, "tokenize_chinese_chars", config.tokenize_chinese_chars);
  if (json.contains("strip_accents"))
    config.strip_accents =
        fields.find("strip_accents") ? std::optional(fields.flag("strip_accents")) : std::nullopt;
  read_token(fields, "unk_token", config.unk_token);
  read_token(fields, "sep_token", config.sep_token);
  read_token(fields, "pad_token", config.pad_token);
  read_token(fields, "cls_token", config.cls_token);
  read_token(fields, "mask_token", config.mask_token);
  read_token(fields, "bos_token", config.bos_token);
  read_token(fields, "eos_token", config.eos_token);
  read_max_length(fields, config);
  read_side(fields, "truncation_side", config.truncation_side);
  read_side(fields, "padding_side", config.padding_side);
  read_added_tokens(fields, config);
  read_more_tokens(fields, "additional_special_tokens", config);
  read_more_tokens(fields, "extra_special_tokens", config);
}

template <class T>
void set(const std::optional<T>& from, T& to) {
  if (from) to = *from;
}

}  // namespace

AddedToken read_added_token(const Fields& fields, MissingFlags missing) {
  const auto flag = [&](const char* key, bool value) {
    const bool absent = missing == MissingFlags::defaults && !fields.find(key);
    return absent ? value : fields.flag(key);
  };
  AddedToken token{.id = -1, .content = fields.text("content")};
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.special = flag("special", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

Config read_config(const std::filesystem::path& folder) {
  Config config;
  read_into(folder / "tokenizer_config.json", config);
  read_into(folder / "special_tokens_map.json", config);
  return config;
}

void apply_config(const Config& config, TokenizerOptions& options) {
  set(config.do_lower_case, options.do_lower_case);
  set(config.strip_accents, options.strip_accents);
  set(config.tokenize_chinese_chars, options.tokenize_chinese_chars);
  set(config.unk_token, options.unk_token);
  set(config.sep_token, options.sep_token);
  set(config.pad_token, options.pad_token);
  set(config.cls_token, options.cls_token);
  set(config.mask_token, options.mask_token);
  set(config.model_max_length, options.model_max_length);
  set(config.truncation_side, options.truncation_side);
  set(config.padding_side, options.padding_side);
}

}  // namespace hasten::tokenizers
