// Reads the normalizers and pre-tokenizers of tokenizer.json.
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/pipeline/pipeline_json.h"

namespace hasten::tokenizers {
namespace {

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

bool flag_or(const Fields& fields, const char* key, bool otherwise) {
  return fields.find(key) ? fields.flag(key) : otherwise;
}

NormalizerOptions read_bert_options(const Fields& fields) {
  NormalizerOptions options;
  options.clean_text = fields.flag("clean_text");
  options.ideographs = fields.flag("handle_chinese_chars");
  options.lowercase = fields.flag("lowercase");
  options.strip_accents = flag_or(fields, "strip_accents", options.lowercase);
  return options;
}

std::unique_ptr<NormalizerStep> read_replace(const Fields& fields) {
  const std::string content = fields.text("content");
  return read_pattern(
      fields, [&](const std::string& text) { return make_replace_step(text, content); },
      [&](Pattern pattern) { return make_replace_step(std::move(pattern), content); });
}

std::unique_ptr<NormalizerStep> read_normalizer_step(const Fields& fields) {
  const std::string type = fields.text("type");
  if (type == "NFC") return make_form_step(Form::nfc);
  if (type == "NFD") return make_form_step(Form::nfd);
  if (type == "NFKC") return make_form_step(Form::nfkc);
  if (type == "NFKD") return make_form_step(Form::nfkd);
  if (type == "Lowercase") return make_lowercase_step();
  if (type == "Strip")
    return make_strip_step(fields.flag("strip_left"), fields.flag("strip_right"));
  if (type == "StripAccents") return make_strip_accents_step();
  if (type == "Replace") return read_replace(fields);
  if (type == "Prepend") return make_prepend_step(fields.text("prepend"));
  if (type == "BertNormalizer") return make_bert_step(read_bert_options(fields));
  if (type == "Nmt") return make_nmt_step();
  if (type == "ByteLevel") return make_byte_level_step();
  if (type == "Precompiled") {
    const std::string where = fields.where() + ".precompiled_charsmap";
    return make_charsmap_step(
        Charsmap(decode_base64(fields.text("precompiled_charsmap"), where), where));
  }
  throw_unknown_part("tokenizers.unknown-normalizer", fields, type,
                     "a normalizer that hasten reads");
}

SplitBehavior read_behavior(const Fields& fields) {
  return choose<SplitBehavior>(fields, "behavior",
                               {{"Isolated", SplitBehavior::isolated},
                                {"Removed", SplitBehavior::removed},
                                {"MergedWithPrevious", SplitBehavior::merged_with_previous},
                                {"MergedWithNext", SplitBehavior::merged_with_next},
                                {"Contiguous", SplitBehavior::contiguous}});
}

std::unique_ptr<SplitterStep> read_split(const Fields& fields) {
  const SplitBehavior behavior = read_behavior(fields);
  const bool inverts = fields.flag("invert");
  return read_pattern(
      fields, [&](const std::string& text) { return make_text_splitter(text, behavior, inverts); },
      [&](Pattern pattern) {
        return make_pattern_splitter(std::move(pattern), behavior, inverts);
      });
}

PrependScheme read_prepend_scheme(const Fields& fields) {
  PrependScheme scheme = PrependScheme::always;
  if (fields.find("prepend_scheme"))
    scheme = choose<PrependScheme>(fields, "prepend_scheme",
                                   {{"first", PrependScheme::first},
                                    {"never", PrependScheme::never},
                                    {"always", PrependScheme::always}});
  if (flag_or(fields, "add_prefix_space", true) || scheme == PrependScheme::never) return scheme;
  throw DataError("tokenizers.wrong-type", {.what = fields.where() + ".add_prefix_space",
                                            .got = "false",
                                            .expected = "the value that prepend_scheme implies"});
}

void read_byte_level(const Fields& fields, SplitterSteps& steps) {
  if (fields.flag("add_prefix_space")) steps.push_back(make_blank_prepender());
  if (flag_or(fields, "use_regex", true))
    steps.push_back(make_pattern_splitter(Pattern(kGpt2Pattern, fields.where()),
                                          SplitBehavior::isolated, false));
}

std::unique_ptr<SplitterStep> read_splitter_step(const Fields& fields, const std::string& type) {
  if (type == "Split") return read_split(fields);
  if (type == "Whitespace") return make_whitespace_splitter();
  if (type == "WhitespaceSplit") return make_white_space_only_splitter();
  if (type == "BertPreTokenizer") return make_bert_splitter();
  if (type == "Punctuation")
    return make_punctuation_splitter(fields.find("behavior") ? read_behavior(fields)
                                                             : SplitBehavior::isolated);
  if (type == "Digits") return make_digits_splitter(fields.flag("individual_digits"));
  if (type == "CharDelimiterSplit")
    return make_character_splitter(read_character(fields, "delimiter"));
  if (type == "FixedLength")
    return make_length_splitter(
        fields.find("length") ? static_cast<std::size_t>(fields.integer("length", 1, 1 << 30)) : 5);
  if (type == "Metaspace")
    return make_metaspace_splitter(read_character(fields, "replacement"),
                                   read_prepend_scheme(fields), flag_or(fields, "split", true));
  throw_unknown_part("tokenizers.unknown-pre-tokenizer", fields, type,
                     "a pre-tokenizer that hasten reads");
}

}  // namespace

NormalizerSteps read_normalizer_steps(const Fields& root) {
  NormalizerSteps steps;
  const PartReader reader(root, "normalizer", "normalizers");
  for (const Fields& part : reader.parts()) steps.push_back(read_normalizer_step(part));
  return steps;
}

bool read_splitter_steps(const Fields& root, SplitterSteps& steps) {
  const PartReader reader(root, "pre_tokenizer", "pretokenizers");
  bool writes_letters = false;  // in the last step
  for (const Fields& part : reader.parts()) {
    if (writes_letters) steps.push_back(make_byte_letter_step());
    const std::string type = part.text("type");
    writes_letters = type == "ByteLevel";
    if (writes_letters)
      read_byte_level(part, steps);
    else
      steps.push_back(read_splitter_step(part, type));
  }
  return writes_letters;
}

}  // namespace hasten::tokenizers
