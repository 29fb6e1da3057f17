// File: unit/tokenizers/small_tokenizer.h
// A small tokenizer.json that the tests of this folder change and write.
//
//   TemporaryDirectory folder;
//   json file = small_json();  file["model"]["unk_token"] = "[OTHER]";
//   auto tokenizer = load(folder.path(), file);
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/tokenizers/bert_tokenizer.h"

namespace small {

using nlohmann::json;

// Ids 0 to 16.
inline const std::vector<std::string> vocabulary{
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world",  "play", "##ing",
    "##ed",  "a",     "b",     "##b",   ",",      "!",     "\u4e2d", "cafe"};

inline json added(int id, const std::string& content) {
  return {{"id", id},        {"special", true}, {"content", content}, {"single_word", false},
          {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
}

inline json piece(const char* kind, const char* id, int type_id) {
  return json::object({{kind, {{"id", id}, {"type_id", type_id}}}});
}

inline json special(const char* token, int id) {
  return {{"id", token}, {"ids", json::array({id})}, {"tokens", json::array({token})}};
}

inline json small_json() {
  json vocab = json::object();
  for (std::size_t i = 0; i < vocabulary.size(); ++i) vocab[vocabulary[i]] = i;
  const json cls = piece("SpecialToken", "[CLS]", 0), sep = piece("SpecialToken", "[SEP]", 0);
  const json first = piece("Sequence", "A", 0), second = piece("Sequence", "B", 1);
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {added(0, "[PAD]"), added(1, "[UNK]"), added(2, "[CLS]"), added(3, "[SEP]"),
            added(4, "[MASK]")}},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {cls, first, sep}},
            {"pair", {cls, first, sep, second, piece("SpecialToken", "[SEP]", 1)}},
            {"special_tokens", {{"[CLS]", special("[CLS]", 2)}, {"[SEP]", special("[SEP]", 3)}}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", vocab}}}};
}

inline void write(const std::filesystem::path& file, std::string_view content) {
  std::ofstream(file, std::ios::binary) << content;
}

inline hasten::BertTokenizer load(const std::filesystem::path& folder, const json& file) {
  write(folder / "tokenizer.json", file.dump());
  return hasten::BertTokenizer::from_json(folder / "tokenizer.json");
}

// The tokenizer of the unchanged file.
inline const hasten::BertTokenizer& tokenizer() {
  static const hasten::BertTokenizer made = [] {
    const hasten::TemporaryDirectory folder;
    return load(folder.path(), small_json());
  }();
  return made;
}

// The tokens of a text without [CLS] and [SEP], with blanks between them.
inline std::string tokens(const hasten::BertTokenizer& tokenizer, std::string_view text) {
  std::string out;
  for (const std::int32_t id : tokenizer.encode(text, {.add_special_tokens = false}).input_ids) {
    if (!out.empty()) out += ' ';
    out += tokenizer.id_to_token(id).value();
  }
  return out;
}

}  // namespace small
