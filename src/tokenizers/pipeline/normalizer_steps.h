// File: tokenizers/pipeline/normalizer_steps.h
// The normalizers of tokenizer.json.
//
//   NormalizerSteps steps;
//   steps.push_back(make_form_step(Form::nfc));
//   const AlignedView result = normalize(steps, view, buffers, scratch);
//
// Thread rule: steps are immutable; safe from many threads, each with its own buffers and scratch.
// run() throws DataError "tokenizers.bad-pattern" and std::bad_alloc.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tokenizers/pipeline/aligned_text.h"
#include "tokenizers/pipeline/charsmap.h"
#include "tokenizers/pipeline/scratch.h"

namespace hasten::tokenizers {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Writes the changed text to `out`, which is empty, and returns true. Returns false if the text
  // stays as it is.
  virtual bool run(const AlignedView& text, AlignedBuffer& out, Scratch& scratch) const = 0;
  // True if this step inserts characters before the first one. A later step may then need to know
  // where characters come from, even if no offsets are requested.
  virtual bool inserts_first() const { return false; }
};
using NormalizerSteps = std::vector<std::unique_ptr<NormalizerStep>>;

std::unique_ptr<NormalizerStep> make_form_step(Form form);
std::unique_ptr<NormalizerStep> make_lowercase_step();
std::unique_ptr<NormalizerStep> make_strip_step(bool left, bool right);
std::unique_ptr<NormalizerStep> make_strip_accents_step();
std::unique_ptr<NormalizerStep> make_nmt_step();
std::unique_ptr<NormalizerStep> make_byte_level_step();
std::unique_ptr<NormalizerStep> make_bert_step(const NormalizerOptions& options);
std::unique_ptr<NormalizerStep> make_charsmap_step(Charsmap map);
std::unique_ptr<NormalizerStep> make_prepend_step(std::string text);
std::unique_ptr<NormalizerStep> make_replace_step(std::string from, std::string to);
std::unique_ptr<NormalizerStep> make_replace_step(Pattern from, std::string to);

// Runs the steps. The result is `text` or is in one of the buffers.
AlignedView normalize(const NormalizerSteps& steps, AlignedView text,
                      std::array<AlignedBuffer, 2>& buffers, Scratch& scratch);

// Puts `text` before a text that is not empty, as the normalizer Prepend does.
void prepend(const AlignedView& source, std::string_view text, AlignedBuffer& out);

// Returns the letter that stands for a byte in the vocabulary of a byte-level tokenizer. It is the
// byte itself, or one of U+0100 to U+0143 for white space and other characters that are not
// visible.
char32_t letter_of_byte(unsigned char byte) noexcept;
// Returns the byte that a letter stands for, or -1.
int byte_of_letter(char32_t letter) noexcept;
// Replaces each byte of the text by its letter.
void write_byte_letters(const AlignedView& text, AlignedBuffer& out);

}  // namespace hasten::tokenizers
