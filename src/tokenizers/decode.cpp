// BertTokenizer::decode: converts ids to text.
#include <string>

#include "tokenizers/clean_up.h"
#include "tokenizers/state.h"

namespace hasten {
namespace {

// Returns the token in the form in which it is appended to the previous ones.
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
    const AddedToken* added = state_->added.find_by_id(id);
    const std::string* token = added ? &state_->added.decoded_text(*added) : state_->token(id);
    if (!token) continue;
    if (options.skip_special_tokens) {
      const AddedToken* special = state_->added.find_by_content(*token);
      if (special && special->special) continue;
    }
    std::string text = appended_text(*token, is_first, state_->decoder);
    if (state_->decoder && state_->decoder->cleanup) tokenizers::clean_up_token(text);
    out += text;
    is_first = false;
  }
  if (options.clean_up_tokenization_spaces) tokenizers::clean_up_text(out);
  return out;
}

}  // namespace hasten
