#include "tokenizers/pipeline/pipeline_json.h"

#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"

namespace hasten::tokenizers {
namespace {

constexpr int kMaxSequenceDepth = 16;
constexpr std::size_t kMaxParts = 64;

// Returns the texts that the added tokens match: their own texts, normalized if the tokens are
// marked `normalized`.
std::vector<std::string> match_texts(const std::vector<AddedToken>& tokens,
                                     const NormalizerSteps& steps) {
  std::vector<std::string> texts;
  Scratch scratch;
  std::array<AlignedBuffer, 2> buffers;
  for (const AddedToken& token : tokens) {
    AlignedView view;
    view.bytes = token.content;
    view.source_end = static_cast<std::uint32_t>(token.content.size());
    texts.emplace_back(token.normalized ? normalize(steps, view, buffers, scratch).bytes
                                        : std::string_view(token.content));
  }
  return texts;
}

void read_added(const Fields& root, Pipeline& pipeline) {
  std::vector<AddedToken> tokens = read_added_tokens(root);
  const std::string where = root.where() + ": added_tokens";
  const TokenTable& vocabulary = pipeline.model->vocabulary();
  assign_added_token_ids([&](const std::string& token) { return vocabulary.find(token); },
                         vocabulary.size(), where, tokens);
  std::vector<std::string> texts = match_texts(tokens, pipeline.normalizer);
  pipeline.added = AddedTokens(std::move(tokens), std::move(texts));
}

}  // namespace

void PartReader::add(const Json& value, const std::string& where, int depth) {
  Fields fields(value, where);
  if (fields.text("type") != "Sequence") {
    if (parts_.size() == kMaxParts)
      throw DataError(
          "tokenizers.too-many-parts",
          {.what = where, .got = "more parts", .expected = str("at most ", kMaxParts, " parts")});
    parts_.push_back(std::move(fields));
    return;
  }
  if (depth == kMaxSequenceDepth)
    throw DataError("tokenizers.too-many-parts",
                    {.what = where,
                     .got = "a more deeply nested sequence",
                     .expected = str("at most ", kMaxSequenceDepth, " levels")});
  std::size_t index = 0;
  for (const Json& each : fields.list(list_key_))
    add(each, str(where, ".", list_key_, "[", index++, "]"), depth + 1);
}

char32_t read_character(const Fields& fields, const char* key) {
  const std::string text = fields.text(key);
  if (text.empty() || decode_utf8(text.data()).size != text.size()) {
    throw DataError("tokenizers.wrong-type",
                    {.what = fields.where() + "." + key,
                     .got = "\"" + std::string(utf8_prefix(text, 60)) + "\"",
                     .expected = "one character"});
  }
  return decode_utf8(text.data()).value;
}

void throw_unknown_part(const char* code, const Fields& fields, const std::string& type,
                        const std::string& expected) {
  throw DataError(code,
                  {.what = fields.where(),
                   .got = "\"" + std::string(utf8_prefix(type, 60)) + "\"",
                   .expected = expected,
                   .hint = "docs/formats.md lists the parts of tokenizer.json that hasten reads"});
}

Pipeline read_pipeline(const std::filesystem::path& file) {
  const Json json = parse_json(file);
  const Fields root(json, file.string());
  if (root.find("version") && root.text("version") != "1.0") {
    throw DataError("tokenizers.unknown-version",
                    {.what = file.string() + ": version",
                     .got = "\"" + std::string(utf8_prefix(root.text("version"), 60)) + "\"",
                     .expected = "\"1.0\""});
  }
  Pipeline pipeline;
  pipeline.model = read_word_model(root);
  pipeline.normalizer = read_normalizer_steps(root);
  pipeline.writes_byte_letters = read_splitter_steps(root, pipeline.splitters);
  read_added(root, pipeline);
  pipeline.post = read_post_processing(root);
  pipeline.has_decoder = read_decoder_steps(root, pipeline.decoder);
  Definition definition;
  definition.options.pad_token.clear();
  read_stored_settings(root, definition);
  pipeline.stored = definition.stored;
  pipeline.options = std::move(definition.options);
  return pipeline;
}

}  // namespace hasten::tokenizers
