// Reads the models of tokenizer.json.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/parse_number.h"
#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"
#include "tokenizers/pipeline/pipeline_json.h"

namespace hasten::tokenizers {
namespace {

using TokenIds = std::vector<std::pair<std::string, std::int32_t>>;

std::string type_of_model(const Fields& fields) {
  if (fields.find("type")) return fields.text("type");
  // The first versions of these files do not name the type.
  if (fields.find("merges")) return "BPE";
  return fields.at("vocab").is_array() ? "Unigram" : "WordPiece";
}

bool optional_flag(const Fields& fields, const char* key) {
  return fields.find(key) && fields.flag(key);
}

std::string optional_text(const Fields& fields, const char* key) {
  return fields.find(key) ? fields.text(key) : "";
}

// Reads {"token": id, ...}. Ids may have gaps.
TokenIds read_token_ids(const Fields& model) {
  const Fields vocabulary = model.object("vocab");
  const Json& tokens = model.at("vocab");
  TokenIds rows;
  rows.reserve(tokens.size());
  std::unordered_set<std::int32_t> ids;
  for (const auto& [token, value] : tokens.items()) {
    // The name of the value's place is built only for the error.
    const bool fits = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                      value.get<std::int64_t>() <= kMaxTokenId;
    const auto id = static_cast<std::int32_t>(
        fits ? value.get<std::int64_t>()
             : Fields::integer_of(value, 0, kMaxTokenId,
                                  str(vocabulary.where(), ".\"", token, "\"")));
    if (!ids.insert(id).second) {
      throw DataError("tokenizers.bad-vocabulary",
                      {.what = str(vocabulary.where(), ".\"", token, "\""),
                       .got = str("the id ", id, " of another token")});
    }
    rows.emplace_back(token, id);
  }
  return rows;
}

// Reads ["a b", ...], or [["a", "b"], ...].
std::vector<std::pair<std::string, std::string>> read_merges(const Fields& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  const Json& list = model.list("merges");
  merges.reserve(list.size());
  const auto throw_bad = [&](const std::string& got) {
    throw DataError("tokenizers.bad-merge",
                    {.what = str(model.where(), ".merges[", merges.size(), "]"),
                     .got = got,
                     .expected = "two tokens"});
  };
  for (const Json& value : list) {
    if (value.is_array()) {
      if (value.size() != 2 || !value[0].is_string() || !value[1].is_string())
        throw_bad(str("a list of ", value.size()));
      merges.emplace_back(value[0].get<std::string>(), value[1].get<std::string>());
      continue;
    }
    if (!value.is_string()) throw_bad(value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    if (text.starts_with("#version")) continue;
    const std::size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
      throw_bad("\"" + text.substr(0, 60) + "\"");
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

std::unique_ptr<WordModel> read_bpe(const Fields& fields) {
  if (const Json* dropout = fields.find("dropout"); dropout != nullptr && *dropout != 0.0) {
    throw DataError("tokenizers.unknown-model",
                    {.what = fields.where() + ".dropout",
                     .got = dropout->is_number() ? dropout->dump() : dropout->type_name(),
                     .expected = "null or 0: hasten always splits a word in the same way"});
  }
  BpeOptions options;
  options.merges = read_merges(fields);
  if (fields.find("unk_token")) options.unk_token = fields.text("unk_token");
  options.continuing_subword_prefix = optional_text(fields, "continuing_subword_prefix");
  options.end_of_word_suffix = optional_text(fields, "end_of_word_suffix");
  options.fuse_unk = optional_flag(fields, "fuse_unk");
  options.byte_fallback = optional_flag(fields, "byte_fallback");
  options.ignore_merges = optional_flag(fields, "ignore_merges");
  return make_bpe(TokenTable(read_token_ids(fields)), options, fields.where());
}

// Returns the number as serde_json reads it; Hugging Face tokenizers reads these files with it. It
// divides the digits, as a whole number, by a power of ten, so the result is sometimes off by one
// rounding. The last bit can decide between splits into the same tokens in a different order.
double rounded_like_serde(double score) {
  char text[32];
  const auto [end, error] =
      std::to_chars(text, text + sizeof text, score, std::chars_format::scientific);
  const std::string_view shortest(text, static_cast<std::size_t>(end - text));
  const std::size_t at = shortest.find('e');
  if (error != std::errc() || at == std::string_view::npos) return score;
  std::uint64_t digits = 0;
  int places = -1;
  for (const char c : shortest.substr(0, at)) {
    if (c < '0' || c > '9') continue;
    digits = digits * 10 + static_cast<std::uint64_t>(c - '0');
    ++places;
  }
  const std::size_t sign = shortest[at + 1] == '+' ? 1 : 0;
  const int exponent = parse_number<int>(shortest.substr(at + 1 + sign)).value() - places;
  if (exponent < -300 || exponent > 0) return score;
  const double value = static_cast<double>(digits) / std::pow(10.0, -exponent);
  return score < 0 ? -value : value;
}

// Reads [["token", score], ...]; the place of a token is its id.
std::unique_ptr<WordModel> read_unigram(const Fields& fields) {
  std::vector<std::pair<std::string, double>> tokens;
  const std::string where = fields.where() + ".vocab";
  for (const Json& value : fields.list("vocab")) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_number()) {
      throw DataError("tokenizers.bad-vocabulary", {.what = str(where, "[", tokens.size(), "]"),
                                                    .got = value.type_name(),
                                                    .expected = "a token and its score"});
    }
    tokens.emplace_back(value[0].get<std::string>(), rounded_like_serde(value[1].get<double>()));
  }
  std::int64_t unk_id = -1;
  if (fields.find("unk_id"))
    unk_id = fields.integer("unk_id", 0, static_cast<std::int64_t>(tokens.size()) - 1);
  return make_unigram(tokens, static_cast<std::int32_t>(unk_id),
                      optional_flag(fields, "byte_fallback"));
}

std::unique_ptr<WordModel> read_word_piece(const Fields& fields) {
  const TokenIds rows = read_token_ids(fields);
  std::vector<std::string> tokens(rows.size());
  for (const auto& [token, id] : rows) {
    if (static_cast<std::size_t>(id) >= rows.size()) {
      throw DataError("tokenizers.bad-vocabulary",
                      {.what = str(fields.where(), ".vocab.\"", token, "\""),
                       .got = str("the id ", id),
                       .expected = str("ids below the number of tokens, ", rows.size())});
    }
    tokens[static_cast<std::size_t>(id)] = token;
  }
  const std::int64_t longest =
      fields.integer("max_input_chars_per_word", 0, std::numeric_limits<std::int64_t>::max());
  return make_word_piece(std::move(tokens), fields.text("unk_token"),
                         fields.text("continuing_subword_prefix"), longest);
}

}  // namespace

std::unique_ptr<WordModel> read_word_model(const Fields& root) {
  const Fields fields(root.at("model"), root.where() + ": model");
  const std::string type = type_of_model(fields);
  if (type == "BPE") return read_bpe(fields);
  if (type == "Unigram") return read_unigram(fields);
  if (type == "WordPiece") return read_word_piece(fields);
  if (type == "WordLevel")
    return make_word_level(TokenTable(read_token_ids(fields)), fields.text("unk_token"));
  throw_unknown_part("tokenizers.unknown-model", fields, type,
                     "BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace hasten::tokenizers
