// File: tokenizers/pipeline/scratch.h
// The memory that a tokenizer uses for one text at a time, kept from text to text.
//
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "tokenizers/normalizer.h"
#include "tokenizers/pipeline/aligned_text.h"
#include "tokenizers/pipeline/pattern.h"
#include "tokenizers/text_properties.h"

namespace hasten::tokenizers {

struct Scratch {
  Matcher matcher;
  std::vector<Match> matches;
  std::vector<FormCharacter> characters;
  Normalized normalized;
  std::vector<TextPart> parts;
};

}  // namespace hasten::tokenizers
