// File: tokenizers/pipeline/splitter_steps.h
// The pre-tokenizers of tokenizer.json, which split a text into words.
//
//   SplitterSteps steps;
//   steps.push_back(make_metaspace_splitter(U'\u2581', PrependScheme::always, true));
//   for (const auto& step : steps) step->run(text, scratch);
//
// Thread rule: steps are immutable; safe from many threads, each with its own text and scratch.
// run() throws DataError "tokenizers.bad-pattern" and std::bad_alloc.
#pragma once

#include <memory>
#include <vector>

#include "tokenizers/pipeline/aligned_text.h"
#include "tokenizers/pipeline/scratch.h"

namespace hasten::tokenizers {

// The treatment of a delimiter. It becomes a word of its own, nothing, a part of the word before or
// after it, or a word together with the delimiters next to it.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

enum class PrependScheme { first, never, always };

class SplitterStep {
 public:
  virtual ~SplitterStep() = default;
  // Splits every part that is not an added token.
  virtual void run(SplitText& text, Scratch& scratch) const = 0;
  // True if it depends on the place that a part has in the original text.
  virtual bool needs_places() const { return false; }
};
using SplitterSteps = std::vector<std::unique_ptr<SplitterStep>>;

// Splits where the pattern matches, or, if `inverts`, where it does not.
std::unique_ptr<SplitterStep> make_pattern_splitter(Pattern pattern, SplitBehavior behavior,
                                                    bool inverts);
std::unique_ptr<SplitterStep> make_text_splitter(std::string delimiter, SplitBehavior behavior,
                                                 bool inverts);
std::unique_ptr<SplitterStep> make_character_splitter(char32_t delimiter);
std::unique_ptr<SplitterStep> make_whitespace_splitter();        // Whitespace
std::unique_ptr<SplitterStep> make_white_space_only_splitter();  // WhitespaceSplit
std::unique_ptr<SplitterStep> make_bert_splitter();
std::unique_ptr<SplitterStep> make_punctuation_splitter(SplitBehavior behavior);
std::unique_ptr<SplitterStep> make_digits_splitter(bool individual);
std::unique_ptr<SplitterStep> make_length_splitter(std::size_t characters);
std::unique_ptr<SplitterStep> make_metaspace_splitter(char32_t replacement, PrependScheme scheme,
                                                      bool splits);
// The two halves of ByteLevel: the first puts a blank before parts, and the second replaces bytes
// by their letters.
std::unique_ptr<SplitterStep> make_blank_prepender();
std::unique_ptr<SplitterStep> make_byte_letter_step();

}  // namespace hasten::tokenizers
