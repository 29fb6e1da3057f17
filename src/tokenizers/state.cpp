#include "tokenizers/state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using tokenizers::TemplatePiece;

tokenizers::NormalizerOptions normalizer_options(const TokenizerOptions& options) {
  return {.clean_text = options.clean_text,
          .ideographs = options.tokenize_chinese_chars,
          .strip_accents = options.strip_accents.value_or(options.do_lower_case),
          .lowercase = options.do_lower_case};
}

tokenizers::WordPieceOptions piece_options(const TokenizerOptions& options) {
  return {.unk_token = options.unk_token,
          .continuing_subword_prefix = options.continuing_subword_prefix,
          .max_input_chars_per_word = options.max_input_chars_per_word};
}

// Throws DataError unless every id in a template belongs to the token that the template names.
void check_templates(const BertTokenizer::State& state, const std::vector<TemplatePiece>& pieces) {
  for (const TemplatePiece& piece : pieces) {
    for (std::size_t i = 0; i < piece.ids.size(); ++i) {
      const std::string* token = state.token(piece.ids[i]);
      if (token && (i >= piece.tokens.size() || *token == piece.tokens[i])) continue;
      throw DataError(
          "tokenizers.missing-token",
          {.what = str("the special token \"", piece.name, "\" of the post-processor"),
           .got = token ? str("\"", *token, "\" at its id ", piece.ids[i])
                        : str("no token at its id ", piece.ids[i]),
           .expected = i < piece.tokens.size() ? str("\"", piece.tokens[i], "\"") : std::string{},
           .hint = "use a post-processor and a vocabulary of the same tokenizer"});
    }
  }
}

}  // namespace

BertTokenizer::State::State(tokenizers::Definition definition)
    : options(std::move(definition.options)),
      normalizer(tokenizers::Normalizer::get(normalizer_options(options))),
      pieces(std::move(definition.vocabulary), piece_options(options)),
      added(options.added_tokens, normalizer),
      templates(std::move(definition.templates)),
      decoder(std::move(definition.decoder)),
      stored(definition.stored),
      stored_stride(definition.stored_stride) {
  check_templates(*this, templates.single);
  check_templates(*this, templates.pair);
}

std::int64_t BertTokenizer::State::size() const noexcept {
  std::int64_t last = pieces.size() - 1;
  for (const AddedToken& token : added.tokens()) last = std::max<std::int64_t>(last, token.id);
  return last + 1;
}

std::optional<std::int32_t> BertTokenizer::State::find(std::string_view token) const noexcept {
  if (const AddedToken* found = added.find_by_content(token)) return found->id;
  return pieces.find(token);
}

const std::string* BertTokenizer::State::token(std::int32_t id) const noexcept {
  if (const AddedToken* found = added.find_by_id(id)) return &found->content;
  return id >= 0 && id < pieces.size() ? &pieces.token(id) : nullptr;
}

}  // namespace hasten
