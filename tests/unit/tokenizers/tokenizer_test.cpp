#include "hasten/tokenizers/tokenizer.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <functional>
#include <new>
#include <span>
#include <thread>

#include "hasten/base/error.h"
#include "slowdown.h"
#include "small_tokenizer.h"
#include "tokenizers/pipeline/word_cache.h"
#include "unit/code_of.h"

namespace tokenizers_tokenizer_test {

using namespace hasten;
using small::added;
using small::json;

namespace {

// A byte-level tokenizer with the merges of "hello" and a blank before it.
json byte_level() {
  json vocabulary = json::object();
  const std::vector<std::string> tokens{"h",  "e",    "l",     "o",           "\u0120", "he",
                                        "ll", "hell", "hello", "\u0120hello", "!"};
  for (std::size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  const json byte_part{{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array({added(11, "<end>")})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_part},
          {"post_processor", byte_part},
          {"decoder", byte_part},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", json::array({"h e", "l l", "he ll", "hell o", "\u0120 hello"})}}}};
}

Tokenizer load(const json& file) {
  const TemporaryDirectory folder;
  small::write(folder.path() / "tokenizer.json", file.dump());
  return Tokenizer::from_file(folder.path() / "tokenizer.json");
}

// The number of bytes that are allocated now.
std::size_t used_memory() {
  const struct mallinfo2 memory = mallinfo2();
  return memory.uordblks + memory.hblkhd;
}

// The error message for a changed file, which begins with the error code, or "read" if there is no
// error.
std::string error_after(const std::function<void(json&)>& change) {
  json file = byte_level();
  change(file);
  try {
    load(file);
  } catch (const DataError& error) {
    return error.code() + " " + error.what();
  }
  return "read";
}

void check_error(const std::function<void(json&)>& change, const char* code,
                 const std::string& place) {
  const std::string error = error_after(change);
  CAPTURE(error);
  CHECK(error.starts_with(std::string("tokenizers.") + code + " "));
  CHECK(error.find("tokenizer.json: " + place) != std::string::npos);
}

}  // namespace

TEST_CASE("a text becomes ids and offsets, and ids become the text") {
  const Tokenizer tokenizer = load(byte_level());
  const Encoding row = tokenizer.encode("hello hello!<end>", {.offsets = true});
  CHECK(row.input_ids == std::vector<std::int32_t>{8, 9, 10, 11});
  CHECK(row.offsets ==
        std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 5}, {6, 11}, {11, 12}, {12, 17}});
  CHECK(row.word_ids == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(tokenizer.decode(row.input_ids) == "hello hello!<end>");
  CHECK(tokenizer.decode(row.input_ids, {.skip_special_tokens = true}) == "hello hello!");
  CHECK(tokenizer.tokens(row.input_ids) ==
        std::vector<std::string>{"hello", "\u0120hello", "!", "<end>"});
  CHECK(tokenizer.vocab_size() == 12);
  CHECK(tokenizer.token_to_id("<end>") == 11);
  CHECK(tokenizer.id_to_token(9) == "\u0120hello");
  CHECK(tokenizer.id_to_token(12) == std::nullopt);
  CHECK(tokenizer.id_to_token(-1) == std::nullopt);
}

TEST_CASE("a pair has the types 0 and 1, and truncation cuts it") {
  const Tokenizer tokenizer = load(byte_level());
  const Encoding pair = tokenizer.encode(
      "hello!", "hello!!", {.truncation = Truncation::longest_first, .max_length = 4});
  CHECK(pair.input_ids == std::vector<std::int32_t>{8, 10, 8, 10});
  CHECK(pair.token_type_ids == std::vector<std::int32_t>{0, 0, 1, 1});
  const Encoding left = tokenizer.encode("hello hello!", {.truncation = Truncation::only_first,
                                                          .max_length = 2,
                                                          .truncation_side = Side::left,
                                                          .offsets = true});
  CHECK(left.input_ids == std::vector<std::int32_t>{9, 10});
}

TEST_CASE("words are encoded one by one, and word_ids has the word of each token") {
  json file = byte_level();
  const std::vector<std::string> words{"hello", "", "hell o!", "<end>"};
  const Encoding row = load(file).encode_words(words);
  // A blank within a word is a token of its own. Offsets leave out blanks, so its own are empty.
  CHECK(row.input_ids == std::vector<std::int32_t>{8, 7, 4, 3, 10, 11});
  CHECK(row.word_ids == std::vector<std::int32_t>{0, 2, 2, 2, 2, 3});
  CHECK(row.offsets == std::vector<std::pair<std::uint32_t, std::uint32_t>>{
                           {0, 5}, {0, 4}, {5, 5}, {5, 6}, {6, 7}, {0, 5}});
  file["pre_tokenizer"]["add_prefix_space"] = true;
  file["post_processor"]["add_prefix_space"] = true;
  const EncodeOptions left{
      .truncation = Truncation::longest_first, .max_length = 2, .truncation_side = Side::left};
  CHECK(load(file)
            .encode_words(std::vector<std::string>{"hello", "hello", "hello"}, left)
            .input_ids == std::vector<std::int32_t>{9, 9});
  CHECK(load(file).encode_words({}).size() == 0);
}

TEST_CASE("a batch is the same on several threads") {
  const Tokenizer tokenizer = load(byte_level());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 100; ++i)
    texts.push_back(std::string(i % 7, ' ') + "hello hell he!" + std::string(i % 5, 'l'));
  const std::vector<Encoding> rows = tokenizer.encode_batch(texts, {.offsets = true}, 4);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(rows[i].input_ids == tokenizer.encode(texts[i]).input_ids);
    CHECK(rows[i].offsets == tokenizer.encode(texts[i], {.offsets = true}).offsets);
  }
}

TEST_CASE("invalid UTF-8 counts as U+FFFD") {
  json file = byte_level();
  file["model"]["vocab"] = json{{"[", 0}, {"\ufffd", 1}, {"?", 2}};
  file["model"] =
      json{{"type", "WordLevel"}, {"vocab", file["model"]["vocab"]}, {"unk_token", "?"}};
  file["pre_tokenizer"] = json{{"type", "Split"},
                               {"pattern", {{"Regex", "."}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
  file["post_processor"] = nullptr;
  file["decoder"] = nullptr;
  file["added_tokens"] = json::array();
  const Encoding row = load(file).encode("[\xff\xe2\x82[", {.offsets = true});
  CHECK(row.input_ids == std::vector<std::int32_t>{0, 1, 1, 0});
  CHECK(row.offsets ==
        std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
}

TEST_CASE("an unknown part is refused, and the message has its name and its place") {
  const auto part = [](const char* key, const json& value) {
    return [key, value](json& file) { file[key] = value; };
  };
  check_error(part("normalizer", {{"type", "Magic"}}), "unknown-normalizer",
              "normalizer: got \"Magic\"");
  check_error(
      part("normalizer", {{"type", "Sequence"},
                          {"normalizers", json::array({{{"type", "NFC"}}, {{"type", "Odd"}}})}}),
      "unknown-normalizer", "normalizer.normalizers[1]: got \"Odd\"");
  check_error(part("pre_tokenizer", {{"type", "UnicodeScripts"}}), "unknown-pre-tokenizer",
              "pre_tokenizer: got \"UnicodeScripts\"");
  check_error(part("post_processor", {{"type", "X"}}), "unknown-post-processor",
              "post_processor: got \"X\"");
  check_error(part("decoder", {{"type", "Sequence"},
                               {"decoders", json::array({{{"type", "Fuse"}}, {{"type", "Y"}}})}}),
              "unknown-decoder", "decoder.decoders[1]: got \"Y\"");
  check_error([](json& file) { file["model"]["type"] = "Markov"; }, "unknown-model",
              "model: got \"Markov\"");
  check_error([](json& file) { file["model"]["dropout"] = 0.5; }, "unknown-model",
              "model.dropout: got 0.5");
  check_error([](json& file) { file["version"] = "2.0"; }, "unknown-version",
              "version: got \"2.0\"");
}

TEST_CASE("a malformed part is refused with the path of its key") {
  check_error([](json& file) { file["model"]["vocab"]["x"] = "y"; }, "wrong-type",
              "model.vocab.\"x\"");
  check_error([](json& file) { file["model"]["vocab"]["x"] = 3; }, "bad-vocabulary",
              "model.vocab.");
  check_error([](json& file) { file["model"]["merges"][2] = "a b c"; }, "bad-merge",
              "model.merges[2]");
  check_error(
      [](json& file) {
        file["model"]["merges"][2] = json::array({"he", 3});
      },
      "bad-merge", "model.merges[2]");
  check_error([](json& file) { file["model"]["merges"][1] = "l x"; }, "bad-merge",
              "model.merges[1]");
  check_error([](json& file) { file["model"]["merges"][1] = 4; }, "bad-merge", "model.merges[1]");
  const json unigram{
      {"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array({json::array({"a", -1.5})})}};
  CHECK(error_after([&](json& file) {
          file["model"] = unigram;
          file["added_tokens"][0]["id"] = 1;
        }) == "read");
  check_error(
      [&](json& file) {
        file["model"] = unigram;
        file["model"]["vocab"][0] = json::array({"a", "b"});
      },
      "bad-vocabulary", "model.vocab[0]");
  check_error(
      [&](json& file) {
        file["model"] = unigram;
        file["model"]["unk_id"] = 1;
      },
      "wrong-type", "model.unk_id");
  const json word_piece{{"type", "WordPiece"},
                        {"unk_token", "a"},
                        {"continuing_subword_prefix", "##"},
                        {"max_input_chars_per_word", 100},
                        {"vocab", {{"a", 0}, {"b", 7}}}};
  check_error([&](json& file) { file["model"] = word_piece; }, "bad-vocabulary",
              "model.vocab.\"b\"");
  check_error([](json& file) { file["model"].erase("merges"); }, "missing-key",
              "model lacks \"merges\"");
  check_error([](json& file) { file["pre_tokenizer"].erase("add_prefix_space"); }, "missing-key",
              "pre_tokenizer lacks");
  check_error([](json& file) { file["added_tokens"][0]["id"] = 50; }, "bad-added-token",
              "added_tokens");
  check_error(
      [](json& file) {
        file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "!!!!"}};
      },
      "bad-charsmap", "normalizer.precompiled_charsmap");
  check_error(
      [](json& file) {
        file["pre_tokenizer"] = {{"type", "Split"},
                                 {"pattern", {{"Regex", "(a"}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
      },
      "bad-pattern", "pre_tokenizer.pattern.Regex");
  check_error(
      [](json& file) {
        file["decoder"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
      },
      "wrong-type", "decoder.replacement");
  json nested{{"type", "NFC"}};
  for (int i = 0; i < 40; ++i)
    nested = json{{"type", "Sequence"}, {"normalizers", json::array({nested})}};
  check_error([&](json& file) { file["normalizer"] = nested; }, "too-many-parts",
              "normalizer.normalizers[0]");
  json many = json::array();
  for (int i = 0; i < 100; ++i) many.push_back(json{{"type", "NFC"}});
  check_error(
      [&](json& file) {
        file["normalizer"] = {{"type", "Sequence"}, {"normalizers", many}};
      },
      "too-many-parts", "normalizer.normalizers[64]");
}

TEST_CASE("a merge whose second token is shorter than the prefix is refused") {
  check_error(
      [](json& file) {
        json& model = file["model"];
        model["continuing_subword_prefix"] = "##";
        model["vocab"] = {{"", 0}, {"a", 1}, {"b", 2}};
        model["merges"] = json::array({json::array({"a", "b"})});
        file["added_tokens"] = json::array();
      },
      "bad-merge", "model.merges[0]: the second token: got \"b\"");
}

TEST_CASE("a file that is nested very deeply is refused") {
  const TemporaryDirectory folder;
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  std::string text = byte_level().dump();
  const std::size_t model = text.find("\"model\":{") + 9;
  text.insert(model, "\"dropout\":" + nested + ",");
  small::write(folder.path() / "tokenizer.json", text);
  CHECK_THROWS_WITH_AS(Tokenizer::from_file(folder.path() / "tokenizer.json"),
                       doctest::Contains("inside of more than 1000 others"), DataError);
  // The keys of added_tokens_decoder must be numbers, although JSON allows any text.
  small::write(folder.path() / "tokenizer.json", byte_level().dump());
  small::write(folder.path() / "tokenizer_config.json",
               R"({"added_tokens_decoder": {")" + nested + R"(": {"content": "x"}}})");
  CHECK_THROWS_AS(Tokenizer::from_pretrained(folder.path()), DataError);
}

TEST_CASE("steps that lengthen a text beyond the limit are an error") {
  const auto longer = [](const char* type) {
    return json{
        {"type", type}, {"pattern", {{"String", "h"}}}, {"content", std::string(33000, 'h')}};
  };
  const auto twice = [](const json& part, const char* key) {
    return json{{"type", "Sequence"}, {key, json::array({part, part})}};
  };
  json file = byte_level();
  file["normalizer"] = longer("Replace");
  file["pre_tokenizer"]["use_regex"] = false;
  CHECK(load(file).encode("h").size() == 33000);
  file["normalizer"] = twice(longer("Replace"), "normalizers");
  CHECK_THROWS_WITH_AS(load(file).encode("h"), doctest::Contains("more than 1 GiB"), DataError);
  json expression = longer("Replace");
  expression["pattern"] = {{"Regex", "h"}};
  file["normalizer"] = twice(expression, "normalizers");
  CHECK_THROWS_WITH_AS(load(file).encode("h"), doctest::Contains("more than 1 GiB"), DataError);

  const std::vector<std::int32_t> ids{0};
  json decoding = byte_level();
  for (const json& part : {longer("Replace"), expression}) {
    decoding["decoder"] = part;
    CHECK(load(decoding).decode(ids).size() == 33000);
    decoding["decoder"] = twice(part, "decoders");
    CHECK_THROWS_WITH_AS(load(decoding).decode(ids), doctest::Contains("more than 1 GiB"),
                         DataError);
  }
}

TEST_CASE("a tokenizer of as many parts as a file may have takes less than 16 MiB") {
  json normalizers = json::array(), splits = json::array();
  for (int i = 0; i < 64; ++i) {
    normalizers.push_back({{"type", "BertNormalizer"},
                           {"clean_text", i % 2 == 0},
                           {"handle_chinese_chars", i % 4 < 2},
                           {"strip_accents", i % 8 < 4},
                           {"lowercase", i % 16 < 8}});
    splits.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", "\\p{Lu}\\p{M}*|\\p{L}+|\\p{N}{1,3}|[^\\s\\p{L}]+"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
  }
  json file = byte_level();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", splits}};
  (void)load(byte_level());
  const std::size_t before = used_memory();
  const Tokenizer tokenizer = load(file);
  CHECK(used_memory() < before + (16 << 20));
}

TEST_CASE("the buffers of a long text are freed, and a full word cache starts over") {
  const Tokenizer tokenizer = load(byte_level());
  std::string text;
  while (text.size() < 1 << 20) text += "hello! ";
  (void)tokenizer.encode("!");
  const std::size_t before = used_memory();
  (void)tokenizer.encode(text, {.truncation = Truncation::only_first, .max_length = 1});
  CHECK(used_memory() < before + (1 << 20));

  tokenizers::WordCache cache;
  const std::vector<tokenizers::WordPart> parts(8, tokenizers::WordPart{1, 0, 1});
  const auto insert = [&](const std::string& word) {
    cache.insert(word, tokenizers::hash_bytes(word), parts);
  };
  for (int i = 0; i < 40000; ++i) insert(std::to_string(i));
  std::span<const tokenizers::WordPart> known;
  CHECK(cache.find("39999", tokenizers::hash_bytes("39999"), known));
  CHECK(known.size() == 8);
  CHECK(!cache.find("0", tokenizers::hash_bytes("0"), known));
}

TEST_CASE("the word cache does not know a word that found no memory") {
  if (kSlowdown > 1) return;  // sanitizers end the process instead of throwing std::bad_alloc
  tokenizers::WordCache cache;
  const std::vector<tokenizers::WordPart> parts(2, tokenizers::WordPart{1, 0, 1});
  const std::uint64_t hash = tokenizers::hash_bytes("hello");
  // More than the address space can hold, so that no part is read. The compiler must not know it.
  volatile std::size_t too_many = std::size_t{1} << 50;
  const std::span<const tokenizers::WordPart> endless(parts.data(), too_many);
  CHECK_THROWS_AS(cache.insert("hello", hash, endless), std::bad_alloc);
  std::span<const tokenizers::WordPart> known;
  CHECK(!cache.find("hello", hash, known));
  cache.insert("hello", hash, parts);
  REQUIRE(cache.find("hello", hash, known));
  CHECK(known.size() == 2);
  CHECK(known[1].id == 1);
}

TEST_CASE("an unknown character without an unknown token is an error if the model needs one") {
  json file = byte_level();
  file["model"] = json{{"type", "Unigram"}, {"vocab", json::array({json::array({"a", -1.0})})}};
  file["added_tokens"] = json::array();
  file["pre_tokenizer"] = nullptr;
  const Tokenizer unigram = load(file);
  CHECK(unigram.encode("aa").input_ids == std::vector<std::int32_t>{0, 0});
  CHECK_THROWS_AS(unigram.encode("ab"), DataError);
  file["model"] = json{{"type", "WordLevel"}, {"vocab", {{"a", 0}}}, {"unk_token", "?"}};
  CHECK_THROWS_AS(load(file).encode("b"), DataError);
  file["model"] =
      json{{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", json::array()}, {"unk_token", ""}};
  CHECK(load(file).encode("a").input_ids == std::vector<std::int32_t>{0});
  CHECK_THROWS_AS(load(file).encode("b"), DataError);
}

TEST_CASE("long texts without a place to split take time proportional to their length") {
  json file = byte_level();
  file["pre_tokenizer"]["use_regex"] = false;
  const Tokenizer tokenizer = load(file);
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "hellohe";
  const Encoding row = tokenizer.encode(text);
  CHECK(row.size() == 40000);
  CHECK(tokenizer.decode(row.input_ids) == text);
}

TEST_CASE("special tokens and sides come from tokenizer_config.json") {
  const TemporaryDirectory folder;
  small::write(folder.path() / "tokenizer.json", byte_level().dump());
  small::write(
      folder.path() / "tokenizer_config.json",
      R"({"eos_token": "<end>", "bos_token": {"content": "hello"}, "padding_side": "left", "model_max_length": 2})");
  const Tokenizer tokenizer = Tokenizer::from_pretrained(folder.path());
  CHECK(tokenizer.eos_id() == 11);
  CHECK(tokenizer.bos_id() == 8);
  CHECK(tokenizer.pad_id() == std::nullopt);
  CHECK(tokenizer.mask_id() == std::nullopt);
  CHECK(tokenizer.special_ids() == std::vector<std::int32_t>{8, 11});
  CHECK(tokenizer.model_max_length() == 2);
  CHECK(tokenizer.encode("hello!!", {.truncation = Truncation::longest_first}).size() == 2);
  std::vector<Encoding> rows = tokenizer.encode_batch(std::vector<std::string>{"hello", "!!"});
  CHECK_THROWS_AS(tokenizer.pad(rows), UsageError);
  tokenizer.pad(rows, {.pad_id = 11});
  CHECK(rows[0].input_ids == std::vector<std::int32_t>{11, 8});
  CHECK(code_of([&] { Tokenizer::from_pretrained(folder.path() / "none"); }) == "io.not-found");
  std::filesystem::create_directory(folder.path() / "empty");
  CHECK(code_of([&] { Tokenizer::from_pretrained(folder.path() / "empty"); }) ==
        "tokenizers.no-tokenizer");

  small::write(
      folder.path() / "tokenizer_config.json",
      R"({"mask_token": "he", "cls_token": "gone", "additional_special_tokens": ["!", "h"]})");
  const Tokenizer masking = Tokenizer::from_pretrained(folder.path());
  CHECK(masking.mask_id() == 5);
  // <end> is only marked as special in tokenizer.json, and "gone" is not a token.
  CHECK(masking.special_ids() == std::vector<std::int32_t>{0, 5, 10});
}

}  // namespace tokenizers_tokenizer_test
