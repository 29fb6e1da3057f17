// Reads BertTokenizer from files and writes it to files.
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/machine/model_folder.h"
#include "tokenizers/definition.h"

namespace hasten {
namespace {

using tokenizers::Config;
using tokenizers::Definition;
using tokenizers::Json;
using tokenizers::TemplatePiece;
using OrderedJson = nlohmann::ordered_json;

// Builds the tokenizer. If the parts of the definition contradict each other, the error names
// `file`, which holds them.
BertTokenizer make(Definition definition, const std::filesystem::path& file) {
  try {
    return BertTokenizer(std::make_shared<const BertTokenizer::State>(std::move(definition)));
  } catch (const DataError& error) {
    ErrorText text = error.text();
    text.what = file.string() + ": " + text.what;
    throw DataError(error.code(), text);
  }
}

// Reads vocab.txt; every other setting comes from `config`.
Definition from_vocab_and_config(const std::filesystem::path& folder, const Config& config) {
  TokenizerOptions options;
  apply_config(config, options);
  options.added_tokens = config.added_tokens;
  return tokenizers::definition_from_vocab(folder / "vocab.txt", options);
}

OrderedJson normalizer_json(const TokenizerOptions& options) {
  return {{"type", "BertNormalizer"},
          {"clean_text", options.clean_text},
          {"handle_chinese_chars", options.tokenize_chinese_chars},
          {"strip_accents",
           options.strip_accents ? OrderedJson(*options.strip_accents) : OrderedJson()},
          {"lowercase", options.do_lower_case}};
}

OrderedJson added_token_json(const AddedToken& token) {
  return {{"content", token.content},       {"single_word", token.single_word},
          {"lstrip", token.lstrip},         {"rstrip", token.rstrip},
          {"normalized", token.normalized}, {"special", token.special}};
}

OrderedJson piece_json(const TemplatePiece& piece) {
  if (piece.kind == TemplatePiece::Kind::special)
    return {{"SpecialToken", {{"id", piece.name}, {"type_id", piece.type_id}}}};
  const char* text = piece.kind == TemplatePiece::Kind::first_text ? "A" : "B";
  return {{"Sequence", {{"id", text}, {"type_id", piece.type_id}}}};
}

OrderedJson post_processor_json(const tokenizers::Templates& templates) {
  if (!templates.from_file) return nullptr;
  OrderedJson out{{"type", "TemplateProcessing"},
                  {"single", OrderedJson::array()},
                  {"pair", OrderedJson::array()},
                  {"special_tokens", OrderedJson::object()}};
  for (const bool is_pair : {false, true}) {
    for (const TemplatePiece& piece : templates.for_pair(is_pair)) {
      out[is_pair ? "pair" : "single"].push_back(piece_json(piece));
      if (piece.kind != TemplatePiece::Kind::special) continue;
      out["special_tokens"][piece.name] = {
          {"id", piece.name}, {"ids", piece.ids}, {"tokens", piece.tokens}};
    }
  }
  return out;
}

OrderedJson truncation_json(const EncodeOptions& options, std::int64_t stride) {
  if (options.truncation == Truncation::none) return nullptr;
  const char* strategy = options.truncation == Truncation::longest_first ? "LongestFirst"
                         : options.truncation == Truncation::only_first  ? "OnlyFirst"
                                                                         : "OnlySecond";
  return {{"direction", options.truncation_side == Side::left ? "Left" : "Right"},
          {"max_length", options.max_length},
          {"strategy", strategy},
          {"stride", stride}};
}

OrderedJson padding_json(const std::optional<PadOptions>& padding, const std::string& pad_token) {
  if (!padding) return nullptr;
  const OrderedJson strategy =
      padding->length == 0 ? OrderedJson("BatchLongest") : OrderedJson{{"Fixed", padding->length}};
  return {{"strategy", strategy},
          {"direction", padding->side == Side::left ? "Left" : "Right"},
          {"pad_to_multiple_of",
           padding->multiple_of == 0 ? OrderedJson() : OrderedJson(padding->multiple_of)},
          {"pad_id", padding->pad_id.value_or(0)},
          {"pad_type_id", padding->pad_type_id},
          {"pad_token", pad_token}};
}

// The vocabulary comes last and is written by hand: an ordered object would search all of its keys
// for each new key.
std::string model_json(const BertTokenizer::State& state) {
  const TokenizerOptions& options = state.options;
  OrderedJson head{{"type", "WordPiece"},
                   {"unk_token", options.unk_token},
                   {"continuing_subword_prefix", options.continuing_subword_prefix},
                   {"max_input_chars_per_word", options.max_input_chars_per_word}};
  std::string out = head.dump();
  out.pop_back();
  out += ",\"vocab\":{";
  for (std::int32_t id = 0; id < state.pieces.size(); ++id)
    out += str(id == 0 ? "" : ",", Json(state.pieces.token(id)).dump(), ":", id);
  return out + "}}";
}

std::string tokenizer_json(const BertTokenizer::State& state) {
  OrderedJson tokens = OrderedJson::array();
  for (const AddedToken& token : state.added.tokens()) {
    OrderedJson entry{{"id", token.id}};
    entry.update(added_token_json(token));
    tokens.push_back(std::move(entry));
  }
  OrderedJson decoder;
  if (state.decoder)
    decoder = {{"type", "WordPiece"},
               {"prefix", state.decoder->prefix},
               {"cleanup", state.decoder->cleanup}};
  const OrderedJson head{{"version", "1.0"},
                         {"truncation", truncation_json(state.stored.encode, state.stored_stride)},
                         {"padding", padding_json(state.stored.padding, state.options.pad_token)},
                         {"added_tokens", tokens},
                         {"normalizer", normalizer_json(state.options)},
                         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                         {"post_processor", post_processor_json(state.templates)},
                         {"decoder", decoder}};
  std::string out = head.dump();
  out.pop_back();
  return out + ",\"model\":" + model_json(state) + "}\n";
}

OrderedJson special_tokens(const BertTokenizer::State& state) {
  const TokenizerOptions& options = state.options;
  OrderedJson out;
  const auto add = [&](const char* key, const std::string& token) {
    if (state.find(token)) out[key] = token;
  };
  add("unk_token", options.unk_token);
  add("sep_token", options.sep_token);
  add("pad_token", options.pad_token);
  add("cls_token", options.cls_token);
  add("mask_token", options.mask_token);
  return out;
}

std::string config_json(const BertTokenizer::State& state) {
  const TokenizerOptions& options = state.options;
  OrderedJson out{{"tokenizer_class", "BertTokenizer"},
                  {"do_lower_case", options.do_lower_case},
                  {"strip_accents",
                   options.strip_accents ? OrderedJson(*options.strip_accents) : OrderedJson()},
                  {"tokenize_chinese_chars", options.tokenize_chinese_chars}};
  out["truncation_side"] = options.truncation_side == Side::right ? "right" : "left";
  out["padding_side"] = options.padding_side == Side::right ? "right" : "left";
  if (options.model_max_length > 0) out["model_max_length"] = options.model_max_length;
  out.update(special_tokens(state));
  OrderedJson added = OrderedJson::object();
  for (const AddedToken& token : state.added.tokens())
    added[std::to_string(token.id)] = added_token_json(token);
  out["added_tokens_decoder"] = added;
  return out.dump(2) + "\n";
}

std::string vocab_txt(const BertTokenizer::State& state) {
  std::string out;
  for (std::int32_t id = 0; id < state.pieces.size(); ++id) out += state.pieces.token(id) + "\n";
  return out;
}

}  // namespace

BertTokenizer BertTokenizer::from_pretrained(const std::filesystem::path& folder_or_name) {
  const std::filesystem::path folder = model_folder(folder_or_name.string());
  if (std::filesystem::exists(folder / "tokenizer.json")) {
    Definition definition = tokenizers::definition_from_json(folder / "tokenizer.json");
    Config config = tokenizers::read_config(folder);
    config.unk_token.reset();  // the model in tokenizer.json decides it
    apply_config(config, definition.options);
    return make(std::move(definition), folder / "tokenizer.json");
  }
  if (std::filesystem::exists(folder / "vocab.txt"))
    return make(from_vocab_and_config(folder, tokenizers::read_config(folder)),
                folder / "vocab.txt");
  const std::string download = download_command(folder);
  throw IoError(
      "tokenizers.no-tokenizer",
      {.what = "no tokenizer in " + folder.string(),
       .expected = "tokenizer.json or vocab.txt",
       .hint = !std::filesystem::is_directory(folder) ? "check the path, there is no such folder"
               : download.empty()                     ? "check that this is the folder of a model"
                                                      : "fetch the missing files: " + download});
}

BertTokenizer BertTokenizer::from_vocab(const std::filesystem::path& file,
                                        const TokenizerOptions& options) {
  TokenizerOptions numbered = options;
  for (AddedToken& token : numbered.added_tokens) token.id = -1;
  return make(tokenizers::definition_from_vocab(file, numbered), file);
}

BertTokenizer BertTokenizer::from_json(const std::filesystem::path& file) {
  return make(tokenizers::definition_from_json(file), file);
}

void BertTokenizer::save_pretrained(const std::filesystem::path& folder) const {
  make_directories(folder);
  write_file_atomically(folder / "tokenizer.json", tokenizer_json(*state_));
  write_file_atomically(folder / "tokenizer_config.json", config_json(*state_));
  write_file_atomically(folder / "special_tokens_map.json", special_tokens(*state_).dump(2) + "\n");
  write_file_atomically(folder / "vocab.txt", vocab_txt(*state_));
}

}  // namespace hasten
