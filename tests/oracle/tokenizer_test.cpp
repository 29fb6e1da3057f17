// Compares the tokenizer with Hugging Face's tokenizers 0.23.3 (generate_tokenizer.py): the
// packaged vocabulary of MiniLM-L6 on difficult texts, and the normalizer on every code point.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "minilm.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/words.h"

namespace oracle_tokenizer_test {

namespace {

using namespace hasten;
using nlohmann::json;
namespace fs = std::filesystem;

const fs::path data = fs::path(HASTEN_TEST_DATA) / "oracle/data/tokenizer";

// Only tests that return if minilm_folder() is empty may call this.
const BertTokenizer& packaged_tokenizer() {
  static const auto tokenizer =
      BertTokenizer::from_json(minilm_folder().value() / "tokenizer.json");
  return tokenizer;
}

json read_json(const char* name) {
  std::ifstream stream(data / name);
  REQUIRE_MESSAGE(stream, "cannot read " << (data / name));
  return json::parse(stream);
}

EncodeOptions encode_options(const json& row) {
  EncodeOptions options{.offsets = true};
  if (!row.contains("options")) return options;
  const json& from = row["options"];
  options.add_special_tokens = from.value("add_special_tokens", true);
  if (!from.contains("truncation")) return options;
  const json& truncation = from["truncation"];
  const std::string strategy = truncation.value("strategy", "longest_first");
  options.truncation = strategy == "only_first"    ? Truncation::only_first
                       : strategy == "only_second" ? Truncation::only_second
                                                   : Truncation::longest_first;
  options.max_length = truncation.at("max_length");
  options.truncation_side =
      truncation.value("direction", "right") == "left" ? Side::left : Side::right;
  return options;
}

std::optional<PadOptions> pad_options(const json& row) {
  if (!row.contains("options") || !row["options"].contains("padding")) return std::nullopt;
  const json& from = row["options"]["padding"];
  PadOptions options;
  options.length = from.value("length", 0);
  options.multiple_of = from.value("pad_to_multiple_of", 0);
  options.side = from.value("direction", "right") == "left" ? Side::left : Side::right;
  return options;
}

Encoding encode(const BertTokenizer& tokenizer, const json& row, const EncodeOptions& options) {
  const std::string text = row.at("text");
  return row.contains("pair") ? tokenizer.encode(text, row["pair"].get<std::string>(), options)
                              : tokenizer.encode(text, options);
}

void compare(const BertTokenizer& tokenizer, const Encoding& got, const json& expected) {
  CHECK(got.input_ids == expected.at("ids").get<std::vector<std::int32_t>>());
  CHECK(got.token_type_ids == expected.at("type_ids").get<std::vector<std::int32_t>>());
  CHECK(got.attention_mask == expected.at("attention_mask").get<std::vector<std::int32_t>>());
  CHECK(got.offsets ==
        expected.at("offsets").get<std::vector<std::pair<std::uint32_t, std::uint32_t>>>());
  std::vector<std::string> tokens;
  for (const std::int32_t id : got.input_ids)
    tokens.emplace_back(tokenizer.id_to_token(id).value());
  CHECK(tokens == expected.at("tokens").get<std::vector<std::string>>());
}

}  // namespace

TEST_CASE(
    "difficult texts, pairs, truncation and padding give the ids, types, masks, offsets and errors "
    "of Hugging Face") {
  if (!minilm_folder()) return;
  const json cases = read_json("cases.json").at("cases");
  REQUIRE(cases.size() > 400);
  for (const json& row : cases) {
    CAPTURE(row.dump().substr(0, 300));
    if (row.contains("error")) {
      CHECK_THROWS_AS(encode(packaged_tokenizer(), row, encode_options(row)), DataError);
      continue;
    }
    std::vector<Encoding> rows{encode(packaged_tokenizer(), row, encode_options(row))};
    if (const auto padding = pad_options(row)) packaged_tokenizer().pad(rows, *padding);
    compare(packaged_tokenizer(), rows[0], row);
  }
}

TEST_CASE("batches are padded to the lengths of Hugging Face") {
  if (!minilm_folder()) return;
  const json batches = read_json("cases.json").at("batches");
  REQUIRE(batches.size() == 10);
  for (const json& batch : batches) {
    CAPTURE(batch.at("options").dump());
    std::vector<Encoding> rows;
    for (const json& row : batch.at("rows"))
      rows.push_back(encode(packaged_tokenizer(), row, encode_options(batch)));
    packaged_tokenizer().pad(rows, pad_options(batch).value());
    for (std::size_t i = 0; i < rows.size(); ++i)
      compare(packaged_tokenizer(), rows[i], batch["rows"][i]);
  }
}

TEST_CASE("the settings of tokenizer.json give the results that Hugging Face gives by default") {
  if (!minilm_folder()) return;
  StoredSettings stored = packaged_tokenizer().stored_settings();
  stored.encode.offsets = true;
  const json rows_as_stored = read_json("cases.json").at("as_stored");
  REQUIRE(rows_as_stored.size() == 4);
  for (const json& row : rows_as_stored) {
    std::vector<Encoding> rows{encode(packaged_tokenizer(), row, stored.encode)};
    packaged_tokenizer().pad(rows, stored.padding.value());
    compare(packaged_tokenizer(), rows[0], row);
  }
}

TEST_CASE("random texts of all scripts give the ids of Hugging Face") {
  if (!minilm_folder()) return;
  std::ifstream stream(data / "random.jsonl");
  std::string line;
  std::size_t count = 0;
  for (; std::getline(stream, line); ++count) {
    const json row = json::parse(line);
    CAPTURE(line);
    CHECK(packaged_tokenizer().encode(row[0].get<std::string>()).input_ids ==
          row[1].get<std::vector<std::int32_t>>());
  }
  CHECK(count >= 3000);
}

TEST_CASE("vocab.txt with other settings gives the ids and offsets of Hugging Face") {
  const json groups = read_json("cased.json").at("groups");
  REQUIRE(groups.size() == 10);
  for (const json& group : groups) {
    const json& settings = group.at("settings");
    CAPTURE(settings.dump());
    TokenizerOptions options;
    options.do_lower_case = settings.at("lowercase");
    options.clean_text = settings.at("clean_text");
    options.tokenize_chinese_chars = settings.at("handle_chinese_chars");
    if (!settings.at("strip_accents").is_null())
      options.strip_accents = settings["strip_accents"].get<bool>();
    const auto tokenizer = BertTokenizer::from_vocab(data / "vocab.txt", options);
    for (const json& row : group.at("rows")) {
      CAPTURE(row.at("text").dump());
      compare(tokenizer, encode(tokenizer, row, {.offsets = true}), row);
    }
  }
}

namespace {

using tokenizers::Normalizer;
using tokenizers::NormalizerOptions;

std::string as_text(const std::u32string& characters) {
  std::string out;
  for (const char32_t c : characters) append_utf8(c, out);
  return out;
}

// Returns the words of "a", the character and "b".
std::string words_around(const Normalizer& normalizer, char32_t c) {
  thread_local tokenizers::Normalized normalized;
  normalizer.run("a" + as_text({c}) + "b", false, normalized);
  std::string words;
  tokenizers::for_each_word(normalized.text(), [&words](std::string_view word, std::size_t) {
    words += std::string(word) + "|";
    return true;
  });
  return words;
}

// Returns the words for an entry of the table: its kind, and its characters in hexadecimal.
std::string expected_words(const std::string& kind, std::istringstream& characters, char32_t c) {
  std::u32string mapped;
  std::uint32_t value = 0;
  while (characters >> std::hex >> value) mapped += static_cast<char32_t>(value);
  if (kind == "keep") return as_text(std::u32string(U"a") + c + U"b|");
  if (kind == "drop") return "ab|";
  if (kind == "space") return "a|b|";
  if (kind == "split")
    return as_text(std::u32string(U"a|") + (mapped.empty() ? std::u32string(1, c) : mapped) +
                   U"|b|");
  if (kind == "map") return as_text(U"a" + mapped + U"b|");
  REQUIRE(kind == "hangul");
  const char32_t index = c - 0xAC00;
  mapped = {static_cast<char32_t>(0x1100 + index / 588),
            static_cast<char32_t>(0x1161 + index % 588 / 28)};
  if (index % 28 != 0) mapped += static_cast<char32_t>(0x11A7 + index % 28);
  return as_text(U"a" + mapped + U"b|");
}

void check_code_points(const char* file, const NormalizerOptions& options) {
  const Normalizer& normalizer = Normalizer::get(options);
  std::ifstream stream(data / file);
  REQUIRE_MESSAGE(stream, "cannot read " << (data / file));
  std::size_t seen = 0, wrong = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::uint32_t first = 0, last = 0;
    std::string kind;
    words >> std::hex >> first >> last >> kind;
    seen += last - first + 1;
    if (kind == "surrogate") continue;
    const auto rest = words.tellg();
    for (char32_t c = first; c <= last; ++c) {
      words.clear();
      words.seekg(rest == std::istringstream::pos_type(-1)
                      ? static_cast<std::istringstream::pos_type>(line.size())
                      : rest);
      const std::string expected = expected_words(kind, words, c);
      if (words_around(normalizer, c) == expected) continue;
      if (++wrong <= 10)
        MESSAGE(file << ": U+" << std::hex << static_cast<std::uint32_t>(c) << " is not \"" << line
                     << "\"");
    }
  }
  CHECK(seen == 0x110000);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every code point is normalized and split as by Hugging Face, with any settings") {
  check_code_points("codepoints.uncased.txt", {});
  check_code_points("codepoints.uncased_accents.txt", {.strip_accents = false});
  check_code_points("codepoints.cased.txt", {.strip_accents = false, .lowercase = false});
  check_code_points("codepoints.cased_stripped.txt", {.lowercase = false});
  check_code_points(
      "codepoints.bare.txt",
      {.clean_text = false, .ideographs = false, .strip_accents = false, .lowercase = false});
}

}  // namespace oracle_tokenizer_test
