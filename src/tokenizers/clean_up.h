// File: tokenizers/clean_up.h
// Removes the blanks that joining tokens by blanks leaves before punctuation and contractions.
//
//   std::string text = "it 's here , now";
//   clean_up_text(text);                      // "it's here, now"
//
// Thread rule: pure functions. They throw std::bad_alloc.
// Source: Hugging Face tokenizers 0.23.3 (decoder WordPiece) and Transformers 5
// (clean_up_tokenization).
#pragma once

#include <string>
#include <string_view>

namespace hasten::tokenizers {

// Replaces each `from`, which must not be empty, by `to`, from left to right.
void replace_all(std::string& text, std::string_view from, std::string_view to);
// Does the same for any `from`. An empty `from` matches between all characters and at both ends.
void replace_text(std::string& text, std::string_view from, std::string_view to);

void clean_up_text(std::string& text);
// Cleans up one token, as a decoder does. This also changes "do not".
void clean_up_token(std::string& token);

}  // namespace hasten::tokenizers
