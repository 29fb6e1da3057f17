// Names that the examples of hasten/tokenizers use without declaring them.
#pragma once

#include "header_examples/contexts/any.h"

namespace context_of_tokenizers {

extern hasten::BertTokenizer tokenizer;

}  // namespace context_of_tokenizers
