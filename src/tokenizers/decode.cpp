// BertTokenizer::decode: converts ids to text.
#include <array>
#include <string>
#include <utility>

#include "state.h"

namespace hasten {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

using Replacement = std::pair<std::string_view, std::string_view>;
constexpr std::array kPunctuation{Replacement{" .", "."},  Replacement{" ?", "?"},
                                  Replacement{" !", "!"},  Replacement{" ,", ","},
                                  Replacement{" ' ", "'"}, Replacement{" n't", "n't"},
                                  Replacement{" 'm", "'m"}};
constexpr std::array kContractions{Replacement{" 's", "'s"}, Replacement{" 've", "'ve"},
                                   Replacement{" 're", "'re"}};

// The decoder's own clean-up, which sees one token at a time, handles one contraction more than the
// clean-up of the whole text.
void clean_up(std::string& text, bool one_token) {
  if (text.find(' ') == std::string::npos) return;
  for (const auto& [from, to] : kPunctuation) replace_all(text, from, to);
  if (one_token) replace_all(text, " do not", " don't");
  for (const auto& [from, to] : kContractions) replace_all(text, from, to);
}

// The token as it is appended to the previous ones.
std::string appended_text(std::string_view token, bool is_first,
                          const std::optional<tokenizers::DecoderOptions>& decoder) {
  if (is_first) return std::string(token);
  if (decoder && token.starts_with(decoder->prefix))
    return std::string(token.substr(decoder->prefix.size()));
  return " " + std::string(token);
}

}  // namespace

std::string BertTokenizer::decode(std::span<const std::int32_t> ids,
                                  const DecodeOptions& options) const {
  std::string out;
  bool is_first = true;
  for (const std::int32_t id : ids) {
    const AddedToken* added = state_->added.with_id(id);
    const std::string* token = added ? &state_->added.decoded_text(*added) : state_->token(id);
    if (!token) continue;
    if (options.skip_special_tokens) {
      const AddedToken* special = state_->added.with_content(*token);
      if (special && special->special) continue;
    }
    std::string text = appended_text(*token, is_first, state_->decoder);
    if (state_->decoder && state_->decoder->cleanup) clean_up(text, true);
    out += text;
    is_first = false;
  }
  if (options.clean_up_tokenization_spaces) clean_up(out, false);
  return out;
}

}  // namespace hasten
