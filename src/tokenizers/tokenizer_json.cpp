// Reads tokenizer.json.
#include <limits>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"

namespace hasten::tokenizers {
namespace {

// Returns the object under `key`. Throws DataError `code` if its "type" is not `type`.
Fields fields_of_type(const Fields& root, const char* key, const char* type, const char* code) {
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
      fields_of_type(root, "normalizer", "BertNormalizer", "tokenizers.unknown-normalizer");
  options.clean_text = fields.flag("clean_text");
  options.tokenize_chinese_chars = fields.flag("handle_chinese_chars");
  if (fields.find("strip_accents")) options.strip_accents = fields.flag("strip_accents");
  options.do_lower_case = fields.flag("lowercase");
}

[[noreturn]] void throw_bad_vocabulary(const std::string& where, const std::string& got,
                                       const std::string& expected, const std::string& hint) {
  throw DataError("tokenizers.bad-vocabulary",
                  {.what = where, .got = got, .expected = expected, .hint = hint});
}

// Returns an id. Throws if the value is not an id. The name of its place is built only here,
// because a vocabulary has tens of thousands of places.
std::size_t require_id(const Json& value, const std::string& token, const std::string& where) {
  return static_cast<std::size_t>(
      Fields::integer_of(value, 0, kMaxTokenId, str(where, ".\"", token, "\"")));
}

// Returns the tokens in the order of their ids, which must be 0, 1, 2 and so on without gaps.
std::vector<std::string> read_vocabulary(const Json& vocabulary, const std::string& where) {
  std::vector<std::string> tokens(vocabulary.size());
  std::vector<bool> taken(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                      value.get<std::int64_t>() <= kMaxTokenId;
    const auto id = fits ? value.get<std::size_t>() : require_id(value, token, where);
    if (id >= tokens.size()) {
      throw_bad_vocabulary(where, str("the id ", id, " of \"", token, "\""),
                           str("an id less than ", tokens.size(), ", the number of tokens"),
                           "ids must be 0, 1, 2, ... without gaps; a duplicate token leaves a gap");
    }
    if (taken[id])
      throw_bad_vocabulary(where,
                           str("the id ", id, " for both \"", tokens[id], "\" and \"", token, "\""),
                           "a different id for each token", "");
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
  const Fields fields = fields_of_type(root, "decoder", "WordPiece", "tokenizers.unknown-decoder");
  definition.decoder =
      DecoderOptions{.prefix = fields.text("prefix"), .cleanup = fields.flag("cleanup")};
}

using Kind = TemplatePiece::Kind;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void throw_bad_template(const std::string& where, const std::string& got,
                                     const std::string& expected) {
  throw DataError("tokenizers.bad-template", {.what = where, .got = got, .expected = expected});
}

// Reads the tokens that one name in the templates means:
//   {"id": name, "ids": [...], "tokens": [...]}
void read_special(const Fields& specials, TemplatePiece& piece, const std::string& where) {
  if (!specials.find(piece.name.c_str()))
    throw_bad_template(where, "\"" + piece.name + "\"", "a name in special_tokens");
  const Fields fields = specials.object(piece.name.c_str());
  for (const Json& id : fields.list("ids"))
    piece.ids.push_back(
        static_cast<std::int32_t>(Fields::integer_of(id, 0, kMaxInt32, fields.where() + ".ids")));
  for (const Json& token : fields.list("tokens"))
    piece.tokens.push_back(Fields::text_of(token, fields.where() + ".tokens"));
  if (piece.ids.size() != piece.tokens.size())
    throw_bad_template(fields.where(),
                       str(piece.ids.size(), " ids for ", piece.tokens.size(), " tokens"),
                       "an id for each token");
}

// Reads {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": "[CLS]", "type_id": 0}}.
TemplatePiece read_piece(const Json& value, const Fields& specials, const std::string& where,
                         bool is_pair) {
  const Fields outer(value, where);
  const bool is_text = outer.find("Sequence") != nullptr;
  const Fields fields = outer.object(is_text ? "Sequence" : "SpecialToken");
  TemplatePiece piece;
  piece.type_id = static_cast<std::int32_t>(fields.integer("type_id", 0, kMaxInt32));
  const std::string id = fields.text("id");
  if (!is_text) {
    piece.kind = Kind::special;
    piece.name = id;
    read_special(specials, piece, where);
  } else if (id == "B" && is_pair) {
    piece.kind = Kind::second_text;
  } else if (id != "A") {
    throw_bad_template(where, "text \"" + id + "\"", is_pair ? "\"A\" or \"B\"" : "\"A\"");
  }
  return piece;
}

std::vector<TemplatePiece> read_template(const Fields& fields, const char* key,
                                         const Fields& specials) {
  std::vector<TemplatePiece> pieces;
  const std::string where = fields.where() + "." + key;
  for (const Json& value : fields.list(key))
    pieces.push_back(read_piece(value, specials, str(where, "[", pieces.size(), "]"),
                                std::string_view(key) == "pair"));
  return pieces;
}

void read_truncation(const Fields& fields, Definition& definition) {
  EncodeOptions& encode = definition.stored.encode;
  encode.max_length = fields.integer("max_length", 0, kMaxInt32);
  encode.truncation = choose<Truncation>(fields, "strategy",
                                         {{"LongestFirst", Truncation::longest_first},
                                          {"OnlyFirst", Truncation::only_first},
                                          {"OnlySecond", Truncation::only_second}});
  if (fields.find("direction"))
    definition.options.truncation_side =
        choose<Side>(fields, "direction", {{"Right", Side::right}, {"Left", Side::left}});
  encode.truncation_side = definition.options.truncation_side;
  definition.stored_stride = fields.integer("stride", 0, kMaxInt32);
}

void read_padding(const Fields& fields, Definition& definition) {
  PadOptions padding;
  const Json& strategy = fields.at("strategy");
  if (strategy.is_object())
    padding.length = fields.object("strategy").integer("Fixed", 0, kMaxInt32);
  else
    choose<int>(fields, "strategy", {{"BatchLongest", 0}});
  definition.options.padding_side =
      choose<Side>(fields, "direction", {{"Right", Side::right}, {"Left", Side::left}});
  padding.side = definition.options.padding_side;
  if (fields.find("pad_to_multiple_of"))
    padding.multiple_of = fields.integer("pad_to_multiple_of", 0, kMaxInt32);
  padding.pad_id = static_cast<std::int32_t>(fields.integer("pad_id", 0, kMaxInt32));
  padding.pad_type_id = static_cast<std::int32_t>(fields.integer("pad_type_id", 0, kMaxInt32));
  definition.options.pad_token = fields.text("pad_token");
  definition.stored.padding = padding;
}

Templates read_post_processor(const Fields& root) {
  const Json* value = root.find("post_processor");
  if (!value) return plain_templates();
  const Fields fields(*value, root.where() + ": post_processor");
  const std::string type = fields.text("type");
  if (type == "BertProcessing") return read_bert_processing(fields);
  if (type == "TemplateProcessing") return read_template_processing(fields);
  fields.throw_unsupported("tokenizers.unknown-post-processor", "\"" + type + "\"",
                           "\"TemplateProcessing\" or \"BertProcessing\"");
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const Fields& root) {
  std::vector<AddedToken> tokens;
  if (!root.find("added_tokens")) return tokens;
  const std::string where = root.where() + ": added_tokens";
  for (const Json& value : root.list("added_tokens")) {
    const Fields fields(value, str(where, "[", tokens.size(), "]"));
    AddedToken token = read_added_token(fields, MissingFlags::error);
    token.id = static_cast<std::int32_t>(fields.integer("id", 0, kMaxTokenId));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::pair<std::string, std::int32_t> read_token_and_id(const Fields& fields, const char* key) {
  const std::string where = fields.where() + "." + key;
  const Json& value = fields.list(key);
  if (value.size() != 2)
    throw_bad_template(where, str(value.size(), " items"), "a token and its id");
  return {Fields::text_of(value[0], where),
          static_cast<std::int32_t>(Fields::integer_of(value[1], 0, kMaxInt32, where))};
}

Templates read_bert_processing(const Fields& fields) {
  const auto [cls, cls_id] = read_token_and_id(fields, "cls");
  const auto [sep, sep_id] = read_token_and_id(fields, "sep");
  return bert_templates(cls, cls_id, sep, sep_id);
}

Templates read_template_processing(const Fields& fields) {
  const Fields specials = fields.object("special_tokens");
  return {.single = read_template(fields, "single", specials),
          .pair = read_template(fields, "pair", specials)};
}

void read_stored_settings(const Fields& root, Definition& definition) {
  if (root.find("truncation")) read_truncation(root.object("truncation"), definition);
  if (root.find("padding")) read_padding(root.object("padding"), definition);
}

Definition definition_from_json(const std::filesystem::path& file) {
  const Json json = parse_json(file);
  const Fields root(json, file.string());
  if (root.find("version") && root.text("version") != "1.0")
    root.throw_unsupported("tokenizers.unknown-version",
                           "\"version\": \"" + root.text("version") + "\"", "\"1.0\"");
  Definition definition;
  read_model(root, definition);
  read_normalizer(root, definition.options);
  fields_of_type(root, "pre_tokenizer", "BertPreTokenizer", "tokenizers.unknown-pre-tokenizer");
  definition.options.added_tokens = read_added_tokens(root);
  assign_added_token_ids(definition.vocabulary, root.where() + ": added_tokens",
                         definition.options.added_tokens);
  definition.templates = read_post_processor(root);
  read_decoder(root, definition);
  read_stored_settings(root, definition);
  return definition;
}

}  // namespace hasten::tokenizers
