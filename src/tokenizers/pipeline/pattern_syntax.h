// File: tokenizers/pipeline/pattern_syntax.h
// Translates a regular expression of Oniguruma (syntax of Ruby) into one of PCRE2 on character
// codes (pattern.h).
//
//   const Translation translation = translate_pattern("\\p{L}+", "file: pre_tokenizer.pattern");
//
// Thread rule: a pure function. Throws DataError "tokenizers.bad-pattern".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/pipeline/pattern.h"

namespace hasten::tokenizers {

struct Translation {
  std::string regex;                      // for PCRE2, on bytes
  std::vector<CharacterCodes::Row> rows;  // the code of each character beyond ASCII
};

Translation translate_pattern(std::string_view regex, const std::string& where);

}  // namespace hasten::tokenizers
