// Reads the post-processors and decoders of tokenizer.json.
#include <limits>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"
#include "tokenizers/pipeline/pipeline_json.h"

namespace hasten::tokenizers {
namespace {

using Kind = TemplatePiece::Kind;

// Returns <s> A </s> and <s> A </s></s> B </s>, all of type 0.
Templates read_roberta_templates(const Fields& fields) {
  const auto special = [](const std::pair<std::string, std::int32_t>& token) {
    return TemplatePiece{
        .kind = Kind::special, .name = token.first, .ids = {token.second}, .tokens = {token.first}};
  };
  const TemplatePiece start = special(read_token_and_id(fields, "cls")),
                      end = special(read_token_and_id(fields, "sep"));
  const TemplatePiece first{.kind = Kind::first_text}, second{.kind = Kind::second_text};
  return {.single = {start, first, end}, .pair = {start, first, end, end, second, end}};
}

std::unique_ptr<DecoderStep> read_replace_decoder(const Fields& fields) {
  const std::string content = fields.text("content");
  return read_pattern(
      fields, [&](const std::string& text) { return make_replace_decoder(text, content); },
      [&](Pattern pattern) { return make_replace_decoder(std::move(pattern), content); });
}

std::size_t read_count(const Fields& fields, const char* key) {
  return static_cast<std::size_t>(fields.integer(key, 0, std::numeric_limits<std::int64_t>::max()));
}

std::unique_ptr<DecoderStep> read_metaspace_decoder(const Fields& fields) {
  const bool never = fields.find("prepend_scheme")
                         ? fields.text("prepend_scheme") == "never"
                         : fields.find("add_prefix_space") && !fields.flag("add_prefix_space");
  return make_metaspace_decoder(read_character(fields, "replacement"), !never);
}

std::unique_ptr<DecoderStep> read_decoder_step(const Fields& fields) {
  const std::string type = fields.text("type");
  if (type == "ByteLevel") return make_byte_level_decoder();
  if (type == "WordPiece")
    return make_word_piece_decoder(fields.text("prefix"), fields.flag("cleanup"));
  if (type == "Metaspace") return read_metaspace_decoder(fields);
  if (type == "BPEDecoder") return make_bpe_decoder(fields.text("suffix"));
  if (type == "ByteFallback") return make_byte_fallback_decoder();
  if (type == "Fuse") return make_fuse_decoder();
  if (type == "Strip")
    return make_strip_decoder(read_character(fields, "content"), read_count(fields, "start"),
                              read_count(fields, "stop"));
  if (type == "Replace") return read_replace_decoder(fields);
  if (type == "CTC")
    return make_ctc_decoder(fields.text("pad_token"), fields.text("word_delimiter_token"),
                            fields.flag("cleanup"));
  throw_unknown_part("tokenizers.unknown-decoder", fields, type, "a decoder that hasten reads");
}

}  // namespace

PostProcessing read_post_processing(const Fields& root) {
  PostProcessing post;
  bool has_templates = false;
  const auto set_templates = [&](const Fields& fields, Templates templates) {
    if (has_templates)
      throw_unknown_part("tokenizers.unknown-post-processor", fields, fields.text("type"),
                         "only one post-processor that adds tokens");
    has_templates = true;
    post.templates = std::move(templates);
  };
  const PartReader reader(root, "post_processor", "processors");
  for (const Fields& fields : reader.parts()) {
    const std::string type = fields.text("type");
    if (type == "TemplateProcessing") {
      set_templates(fields, read_template_processing(fields));
    } else if (type == "BertProcessing") {
      set_templates(fields, read_bert_processing(fields));
    } else if (type == "RobertaProcessing") {
      if (fields.flag("trim_offsets")) post.trims.push_back(fields.flag("add_prefix_space"));
      set_templates(fields, read_roberta_templates(fields));
    } else if (type == "ByteLevel") {
      if (fields.flag("trim_offsets")) post.trims.push_back(fields.flag("add_prefix_space"));
    } else {
      throw_unknown_part(
          "tokenizers.unknown-post-processor", fields, type,
          "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence");
    }
  }
  return post;
}

bool read_decoder_steps(const Fields& root, DecoderSteps& steps) {
  if (!root.find("decoder")) return false;
  const PartReader reader(root, "decoder", "decoders");
  for (const Fields& part : reader.parts()) steps.push_back(read_decoder_step(part));
  return true;
}

}  // namespace hasten::tokenizers
