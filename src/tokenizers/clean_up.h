// File: tokenizers/clean_up.h
// Removes the blanks before punctuation and contractions that joining tokens by blanks leaves.
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

// Replaces `from`, which must not be empty, from the left.
void replace_all(std::string& text, std::string_view from, std::string_view to);
// The same for any `from`: an empty one is at each place between characters, and at both ends.
void replace_text(std::string& text, std::string_view from, std::string_view to);

void clean_up_text(std::string& text);
// The clean-up of a decoder, which sees one token at a time and changes "do not", too.
void clean_up_token(std::string& token);

}  // namespace hasten::tokenizers
