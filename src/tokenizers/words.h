// File: tokenizers/words.h
// Splits normalized text into words as Hugging Face's BertPreTokenizer does: white space separates
// words, and each punctuation character is a word of its own.
//
//   for_each_word("it's", [&](std::string_view word, std::size_t at) {
//     words.emplace_back(word, at);   // ("it", 0), ("'", 2), ("s", 3)
//     return true;
//   });
//
// Thread rule: a pure function. Throws what `use` throws.
#pragma once

#include <string_view>

#include "base/utf8.h"
#include "tokenizers/unicode.h"

namespace hasten::tokenizers {

// Calls use(word, position in bytes) for each word of valid UTF-8 until it returns false.
template <class Use>
void for_each_word(std::string_view text, Use&& use) {
  constexpr int apart = Unicode::white | Unicode::punctuation;
  const Unicode& unicode = Unicode::get();
  std::size_t start = 0, at = 0;
  while (at < text.size()) {
    const DecodedCharacter character = decode_utf8(text.data() + at);
    if (!unicode.is(character.value, apart)) {
      at += character.size;
      continue;
    }
    if (start < at && !use(text.substr(start, at - start), start)) return;
    const bool is_word = !unicode.is(character.value, Unicode::white);
    if (is_word && !use(text.substr(at, character.size), at)) return;
    at += character.size;
    start = at;
  }
  if (start < at) use(text.substr(start, at - start), start);
}

}  // namespace hasten::tokenizers
