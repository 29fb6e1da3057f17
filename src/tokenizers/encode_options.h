// File: tokenizers/encode_options.h
// Checks the options of one encoding.
//
//   const EncodeOptions options = resolve({.truncation = Truncation::longest_first}, defaults, templates, false);
//
// Thread rule: a pure function.
#pragma once

#include "hasten/tokenizers/detail/options.h"
#include "tokenizers/templates.h"

namespace hasten::tokenizers {

// Fills in the tokenizer's side and length. Throws UsageError "tokenizers.bad-max-length" and
// "tokenizers.no-second-text".
EncodeOptions resolve(EncodeOptions options, const TokenizerOptions& defaults,
                      const Templates& templates, bool is_pair);

}  // namespace hasten::tokenizers
