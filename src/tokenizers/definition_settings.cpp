// Reads the post-processor, truncation and padding of tokenizer.json.
#include <limits>

#include "definition.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {
namespace {

using Kind = TemplatePiece::Kind;
constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void throw_bad_template(const std::string& where, const std::string& what) {
  throw DataError("tokenizers.bad-template", {.what = where + ": " + what});
}

// Reads the tokens that one name in the templates stands for:
//   {"id": name, "ids": [...], "tokens": [...]}
void read_special(const Fields& specials, TemplatePiece& piece, const std::string& where) {
  if (!specials.find(piece.name.c_str()))
    throw_bad_template(where, "\"" + piece.name + "\" is not in special_tokens");
  const Fields fields = specials.object(piece.name.c_str());
  for (const Json& id : fields.list("ids"))
    piece.ids.push_back(
        static_cast<std::int32_t>(Fields::integer_of(id, 0, kLargest, fields.where() + ".ids")));
  for (const Json& token : fields.list("tokens"))
    piece.tokens.push_back(Fields::text_of(token, fields.where() + ".tokens"));
  if (piece.ids.size() != piece.tokens.size())
    throw_bad_template(fields.where(),
                       str(piece.ids.size(), " ids for ", piece.tokens.size(), " tokens"));
}

// Reads {"Sequence": {"id": "A", "type_id": 0}} or {"SpecialToken": {"id": "[CLS]", "type_id": 0}}.
TemplatePiece read_piece(const Json& value, const Fields& specials, const std::string& where,
                         bool is_pair) {
  const Fields outer(value, where);
  const bool is_text = outer.find("Sequence") != nullptr;
  const Fields fields = outer.object(is_text ? "Sequence" : "SpecialToken");
  TemplatePiece piece;
  piece.type_id = static_cast<std::int32_t>(fields.integer("type_id", 0, kLargest));
  const std::string id = fields.text("id");
  if (!is_text) {
    piece.kind = Kind::special;
    piece.name = id;
    read_special(specials, piece, where);
  } else if (id == "B" && is_pair) {
    piece.kind = Kind::second_text;
  } else if (id != "A") {
    throw_bad_template(
        where, str("got text \"", id, "\", expected ", is_pair ? "\"A\" or \"B\"" : "\"A\""));
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

// Reads a token and its id: ["[SEP]", 102].
std::pair<std::string, std::int32_t> read_token_and_id(const Fields& fields, const char* key) {
  const std::string where = fields.where() + "." + key;
  const Json& value = fields.list(key);
  if (value.size() != 2) throw_bad_template(where, "expected a token and its id");
  return {Fields::text_of(value[0], where),
          static_cast<std::int32_t>(Fields::integer_of(value[1], 0, kLargest, where))};
}

void read_truncation(const Fields& fields, Definition& definition) {
  EncodeOptions& encode = definition.stored.encode;
  encode.max_length = fields.integer("max_length", 0, kLargest);
  encode.truncation = choose<Truncation>(fields, "strategy",
                                         {{"LongestFirst", Truncation::longest_first},
                                          {"OnlyFirst", Truncation::only_first},
                                          {"OnlySecond", Truncation::only_second}});
  if (fields.find("direction"))
    definition.options.truncation_side =
        choose<Side>(fields, "direction", {{"Right", Side::right}, {"Left", Side::left}});
  encode.truncation_side = definition.options.truncation_side;
  definition.stored_stride = fields.integer("stride", 0, kLargest);
}

void read_padding(const Fields& fields, Definition& definition) {
  PadOptions padding;
  const Json& strategy = fields.at("strategy");
  if (strategy.is_object())
    padding.length = fields.object("strategy").integer("Fixed", 0, kLargest);
  else
    choose<int>(fields, "strategy", {{"BatchLongest", 0}});
  definition.options.padding_side =
      choose<Side>(fields, "direction", {{"Right", Side::right}, {"Left", Side::left}});
  padding.side = definition.options.padding_side;
  if (fields.find("pad_to_multiple_of"))
    padding.multiple_of = fields.integer("pad_to_multiple_of", 0, kLargest);
  padding.pad_id = static_cast<std::int32_t>(fields.integer("pad_id", 0, kLargest));
  padding.pad_type_id = static_cast<std::int32_t>(fields.integer("pad_type_id", 0, kLargest));
  definition.options.pad_token = fields.text("pad_token");
  definition.stored.padding = padding;
}

}  // namespace

Templates read_post_processor(const Fields& root) {
  const Json* value = root.find("post_processor");
  if (!value) return plain_templates();
  const Fields fields(*value, root.where() + ": post_processor");
  const std::string type = fields.text("type");
  if (type == "BertProcessing") {
    const auto [cls, cls_id] = read_token_and_id(fields, "cls");
    const auto [sep, sep_id] = read_token_and_id(fields, "sep");
    return bert_templates(cls, cls_id, sep, sep_id);
  }
  if (type != "TemplateProcessing") {
    fields.throw_unsupported("tokenizers.unknown-post-processor", "\"" + type + "\"",
                             "\"TemplateProcessing\" or \"BertProcessing\"");
  }
  const Fields specials = fields.object("special_tokens");
  return {.single = read_template(fields, "single", specials),
          .pair = read_template(fields, "pair", specials)};
}

void read_stored_settings(const Fields& root, Definition& definition) {
  if (root.find("truncation")) read_truncation(root.object("truncation"), definition);
  if (root.find("padding")) read_padding(root.object("padding"), definition);
}

}  // namespace hasten::tokenizers
