// File: tokenizers/pipeline/pipeline_json.h
// Reads a tokenizer.json into a Pipeline.
//
//   Pipeline pipeline = read_pipeline("gpt2/tokenizer.json");
//
// Thread rule: only reads the file; any thread. Throws IoError, and DataError with the codes
// tokenizers.bad-json, wrong-type, missing-key, unknown-version, unknown-model, unknown-normalizer,
// unknown-pre-tokenizer, unknown-post-processor, unknown-decoder, bad-vocabulary, bad-merge,
// bad-added-token, bad-template, bad-pattern, bad-charsmap, missing-token and too-many-parts. The
// messages name the file and the key's path in it.
#pragma once

#include <filesystem>

#include "tokenizers/json_fields.h"
#include "tokenizers/pipeline/pipeline.h"

namespace hasten::tokenizers {

Pipeline read_pipeline(const std::filesystem::path& file);

// Each function reads one part of the file. `root` is the whole object.
std::unique_ptr<WordModel> read_word_model(const Fields& root);
NormalizerSteps read_normalizer_steps(const Fields& root);
// Returns true if the last step is to write the letters of bytes. This step is then left out.
bool read_splitter_steps(const Fields& root, SplitterSteps& steps);
PostProcessing read_post_processing(const Fields& root);
// Returns false if there is no decoder.
bool read_decoder_steps(const Fields& root, DecoderSteps& steps);

// Walks through the parts under one key: a part, or a Sequence of parts, whose list is under
// `list_key`.
class PartReader {
 public:
  PartReader(const Fields& root, const char* key, const char* list_key) : list_key_(list_key) {
    if (const Json* value = root.find(key)) add(*value, root.where() + ": " + key, 0);
  }
  // The parts in order, without the sequences.
  const std::vector<Fields>& parts() const noexcept { return parts_; }

 private:
  void add(const Json& value, const std::string& where, int depth);

  const char* list_key_;
  std::vector<Fields> parts_;
};

// Reads the pattern of Replace and Split: {"String": "text"} or {"Regex": "expression"}. Calls one
// of the two functions with it.
template <class Text, class Regex>
auto read_pattern(const Fields& fields, Text use_text, Regex use_regex) {
  const Fields pattern = fields.object("pattern");
  if (pattern.find("String")) {
    const std::string text = pattern.text("String");
    // An empty text matches between all characters, as an empty expression does.
    if (text.empty()) return use_regex(Pattern("", pattern.where()));
    return use_text(text);
  }
  return use_regex(Pattern(pattern.text("Regex"), pattern.where() + ".Regex"));
}

// Reads a text that has exactly one character.
char32_t read_character(const Fields& fields, const char* key);

[[noreturn]] void throw_unknown_part(const char* code, const Fields& fields,
                                     const std::string& type, const std::string& expected);

}  // namespace hasten::tokenizers
