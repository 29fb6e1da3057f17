#include "tokenizers/encode_options.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {

EncodeOptions resolve(EncodeOptions options, const TokenizerOptions& defaults,
                      const Templates& templates, bool is_pair) {
  if (options.max_length < 0) {
    throw UsageError("tokenizers.bad-max-length",
                     {.what = "EncodeOptions::max_length",
                      .got = str(options.max_length),
                      .expected = "a positive number, or 0 for the model's limit"});
  }
  if (options.truncation == Truncation::none) return options;
  if (!options.truncation_side) options.truncation_side = defaults.truncation_side;
  if (options.max_length == 0) options.max_length = defaults.model_max_length;
  if (options.max_length == 0) {
    throw UsageError(
        "tokenizers.bad-max-length",
        {.what =
             "truncation without a length: neither the options nor the tokenizer's files set one",
         .hint = "set EncodeOptions::max_length"});
  }
  const auto specials = options.add_special_tokens ? special_count(templates.for_pair(is_pair)) : 0;
  if (options.max_length < static_cast<std::int64_t>(specials)) {
    throw UsageError("tokenizers.bad-max-length",
                     {.what = "EncodeOptions::max_length, which must include the special tokens",
                      .got = str(options.max_length),
                      .expected = str("at least ", specials)});
  }
  if (options.truncation == Truncation::only_second && !is_pair)
    throw UsageError("tokenizers.no-second-text",
                     {.what = "Truncation::only_second, but there is only one text"});
  return options;
}

}  // namespace hasten::tokenizers
