// Reads tokenizer.json, except its post-processor, truncation and padding.
#include <limits>
#include <utility>

#include "definition.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {
namespace {

// Returns the object under `key`. Throws DataError `code` if its "type" is not `type`.
Fields typed(const Fields& root, const char* key, const char* type, const char* code) {
  const Json* value = root.find(key);
  const std::string expected = str("\"type\": \"", type, "\"");
  if (!value) root.throw_unsupported(code, str("no \"", key, "\""), expected);
  const Fields fields(*value, root.where() + ": " + key);
  const std::string found = fields.text("type");
  if (found != type) fields.throw_unsupported(code, "\"" + found + "\"", expected);
  return fields;
}

void read_normalizer(const Fields& root, TokenizerOptions& options) {
  const Fields fields =
      typed(root, "normalizer", "BertNormalizer", "tokenizers.unknown-normalizer");
  options.clean_text = fields.flag("clean_text");
  options.tokenize_chinese_chars = fields.flag("handle_chinese_chars");
  if (fields.find("strip_accents")) options.strip_accents = fields.flag("strip_accents");
  options.do_lower_case = fields.flag("lowercase");
}

[[noreturn]] void throw_bad_vocabulary(const std::string& where, const std::string& what,
                                       const std::string& hint) {
  throw DataError("tokenizers.bad-vocabulary", {.what = where + ": " + what, .hint = hint});
}

// Throws the error for a value that is not an id. The name of its place is built only here, because
// a vocabulary has tens of thousands of places.
std::size_t require_id(const Json& value, const std::string& token, const std::string& where) {
  return static_cast<std::size_t>(
      Fields::integer_of(value, 0, kLargestId, str(where, ".\"", token, "\"")));
}

// Returns the tokens in the order of their ids, which must be 0, 1, 2 and so on without gaps.
std::vector<std::string> read_vocabulary(const Json& vocabulary, const std::string& where) {
  std::vector<std::string> tokens(vocabulary.size());
  std::vector<bool> taken(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                      value.get<std::int64_t>() <= kLargestId;
    const auto id = fits ? value.get<std::size_t>() : require_id(value, token, where);
    if (id >= tokens.size()) {
      throw_bad_vocabulary(
          where,
          str("\"", token, "\" has the id ", id, ", but there are ", tokens.size(), " tokens"),
          "ids must be 0, 1, 2, ... without gaps; a duplicate token leaves a gap");
    }
    if (taken[id])
      throw_bad_vocabulary(
          where, str("\"", tokens[id], "\" and \"", token, "\" have the same id ", id), "");
    taken[id] = true;
    tokens[id] = token;
  }
  return tokens;
}

void read_model(const Fields& root, Definition& definition) {
  const Fields fields = root.object("model");
  // The first versions of these files do not name the type.
  const std::string type = fields.find("type")     ? fields.text("type")
                           : fields.find("merges") ? "BPE"
                                                   : "WordPiece";
  if (type != "WordPiece")
    fields.throw_unsupported("tokenizers.unknown-model", "\"" + type + "\"", "\"WordPiece\"");
  definition.options.unk_token = fields.text("unk_token");
  definition.options.continuing_subword_prefix = fields.text("continuing_subword_prefix");
  definition.options.max_input_chars_per_word =
      fields.integer("max_input_chars_per_word", 0, std::numeric_limits<std::int64_t>::max());
  const Fields vocabulary = fields.object("vocab");
  definition.vocabulary = read_vocabulary(fields.at("vocab"), vocabulary.where());
}

void read_decoder(const Fields& root, Definition& definition) {
  if (!root.find("decoder")) return;
  const Fields fields = typed(root, "decoder", "WordPiece", "tokenizers.unknown-decoder");
  definition.decoder =
      DecoderOptions{.prefix = fields.text("prefix"), .cleanup = fields.flag("cleanup")};
}

void read_added_tokens(const Fields& root, Definition& definition) {
  if (!root.find("added_tokens")) return;
  const std::string where = root.where() + ": added_tokens";
  for (const Json& value : root.list("added_tokens")) {
    const Fields fields(value, str(where, "[", definition.options.added_tokens.size(), "]"));
    AddedToken token = read_added_token(fields);
    token.id = static_cast<std::int32_t>(fields.integer("id", 0, kLargestId));
    definition.options.added_tokens.push_back(std::move(token));
  }
  number_added_tokens(definition.vocabulary, where, definition.options.added_tokens);
}

}  // namespace

Definition definition_from_json(const std::filesystem::path& file) {
  const Json json = parse_json(file);
  const Fields root(json, file.string());
  if (root.find("version") && root.text("version") != "1.0")
    root.throw_unsupported("tokenizers.unknown-version",
                           "\"version\": \"" + root.text("version") + "\"", "\"1.0\"");
  Definition definition;
  read_model(root, definition);
  read_normalizer(root, definition.options);
  typed(root, "pre_tokenizer", "BertPreTokenizer", "tokenizers.unknown-pre-tokenizer");
  read_added_tokens(root, definition);
  definition.templates = read_post_processor(root);
  read_decoder(root, definition);
  read_stored_settings(root, definition);
  return definition;
}

}  // namespace hasten::tokenizers
