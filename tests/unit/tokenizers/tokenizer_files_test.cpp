#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "small_tokenizer.h"

namespace tokenizers_tokenizer_files_test {

using namespace hasten;
using small::json;
using small::tokens;
using small::write;

namespace {

namespace fs = std::filesystem;

std::string lines(const std::vector<std::string>& tokens, const char* end = "\n") {
  std::string out;
  for (const std::string& token : tokens) out += token + end;
  return out;
}

std::string vocab_error(std::string_view content, const TokenizerOptions& options = {}) {
  const TemporaryDirectory folder;
  write(folder.path() / "vocab.txt", content);
  try {
    BertTokenizer::from_vocab(folder.path() / "vocab.txt", options);
  } catch (const Error& error) {
    return error.code();
  }
  return "read";
}

}  // namespace

TEST_CASE("vocab.txt has one token per line, with any line end") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "vocab.txt";
  for (const char* end : {"\n", "\r\n", " \u00a0\n"}) {
    write(file, lines(small::vocabulary, end));
    const BertTokenizer tokenizer = BertTokenizer::from_vocab(file);
    CHECK(tokenizer.vocab_size() == 17);
    CHECK(tokenizer.encode("Playing [MASK]").input_ids == std::vector<std::int32_t>{2, 7, 8, 4, 3});
  }
  const std::string all = lines(small::vocabulary);
  write(file, all.substr(0, all.size() - 1));  // the last line has no line end
  CHECK(BertTokenizer::from_vocab(file).vocab_size() == 17);
}

TEST_CASE("a vocab.txt with repeated, missing or invalid tokens is refused") {
  const std::string good = lines(small::vocabulary);
  CHECK(vocab_error(good) == "read");
  CHECK(vocab_error("") == "tokenizers.missing-token");
  CHECK(vocab_error(good + "hello\n") == "tokenizers.bad-vocabulary");
  CHECK(vocab_error(good + "\n") == "read");  // one empty token, which no text produces
  CHECK(vocab_error(good + "\n\n") == "tokenizers.bad-vocabulary");
  CHECK(vocab_error(good + "\xff\n") == "tokenizers.bad-vocabulary");
  CHECK(vocab_error("[UNK]\n[CLS]\na\n") == "tokenizers.missing-token");
  CHECK(vocab_error("[UNK]\n[SEP]\na\n") == "tokenizers.missing-token");
  CHECK(vocab_error("[CLS]\n[SEP]\na\n") == "tokenizers.missing-token");
  CHECK(vocab_error("<u>\n<c>\n<s>\n",
                    {.unk_token = "<u>", .sep_token = "<s>", .cls_token = "<c>"}) == "read");
  CHECK(vocab_error(good, {.max_input_chars_per_word = -1}) == "tokenizers.bad-options");
  CHECK(vocab_error(good, {.added_tokens = {{.content = "\xff"}}}) == "tokenizers.bad-added-token");
}

TEST_CASE("a special token that the vocabulary lacks is an error only when it is used") {
  const TemporaryDirectory folder;
  write(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  const BertTokenizer tokenizer = BertTokenizer::from_vocab(folder.path() / "vocab.txt");
  CHECK(tokenizer.encode("a").input_ids == std::vector<std::int32_t>{1, 3, 2});
  CHECK_THROWS_AS(tokenizer.mask_id(), UsageError);
  std::vector<Encoding> rows(2);
  CHECK_THROWS_AS(tokenizer.pad(rows), UsageError);
  CHECK_NOTHROW(tokenizer.pad(rows, {.pad_id = 0}));
}

TEST_CASE("options set case, accents, ideographs and further tokens") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "vocab.txt";
  write(file, "[UNK]\n[CLS]\n[SEP]\nA\na\n\u00e9\ne\n\u4e2d\u4e2d\n");
  CHECK(tokens(BertTokenizer::from_vocab(file), "A \u00e9") == "a e");
  CHECK(tokens(BertTokenizer::from_vocab(file, {.do_lower_case = false}), "A \u00e9") ==
        "A \u00e9");
  CHECK(tokens(BertTokenizer::from_vocab(file, {.strip_accents = false}), "A \u00e9") ==
        "a \u00e9");
  CHECK(tokens(BertTokenizer::from_vocab(file, {.tokenize_chinese_chars = false}),
               "\u4e2d\u4e2d") == "\u4e2d\u4e2d");
  const BertTokenizer more = BertTokenizer::from_vocab(
      file, {.added_tokens = {{.id = 77, .content = "<x>"}, {.content = "a"}, {.content = "<y>"}}});
  CHECK(more.token_to_id("<x>") == 8);
  CHECK(more.token_to_id("a") == 4);
  CHECK(more.token_to_id("<y>") == 9);
  CHECK(more.vocab_size() == 10);
}

TEST_CASE("a folder is read from tokenizer.json, or else from vocab.txt, or else refused") {
  const TemporaryDirectory folder;
  try {
    BertTokenizer::from_pretrained(folder.path());
    FAIL("not refused");
  } catch (const IoError& error) {
    CHECK(error.code() == "tokenizers.no-tokenizer");
  }
  CHECK_THROWS_AS(BertTokenizer::from_pretrained(folder.path() / "nowhere"), IoError);
  write(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  CHECK(BertTokenizer::from_pretrained(folder.path()).vocab_size() == 4);
  write(folder.path() / "tokenizer.json", small::small_json().dump());
  CHECK(BertTokenizer::from_pretrained(folder.path()).vocab_size() == 17);
}

TEST_CASE("tokenizer_config.json and special_tokens_map.json add tokens to vocab.txt") {
  const TemporaryDirectory folder;
  write(folder.path() / "vocab.txt", "<unk>\n<cls>\n<sep>\n<mask>\nA\na\n");
  write(folder.path() / "tokenizer_config.json",
        R"({
    "do_lower_case": false, "strip_accents": null, "cls_token": {"content": "<cls>", "lstrip": true},
    "sep_token": "<sep>", "mask_token": "<mask>", "model_max_length": 6,
    "truncation_side": "left", "padding_side": "left",
    "added_tokens_decoder": {
      "3": {"content": "<mask>", "lstrip": true, "rstrip": false, "single_word": false,
            "normalized": false, "special": true},
      "6": {"content": "<b>", "lstrip": false, "rstrip": false, "single_word": false,
            "normalized": false, "special": false}},
    "additional_special_tokens": ["<c>", {"content": "<b>"}]})");
  write(folder.path() / "special_tokens_map.json",
        R"({"unk_token": "<unk>", "sep_token": "<other>"})");
  const BertTokenizer tokenizer = BertTokenizer::from_pretrained(folder.path());
  CHECK(tokenizer.encode("A  <mask> b<b>", {.offsets = true}).offsets[2] ==
        std::pair<std::uint32_t, std::uint32_t>(1, 9));
  CHECK(tokenizer.encode("A <mask> b<b><c>").input_ids ==
        std::vector<std::int32_t>{1, 4, 3, 0, 6, 7, 2});
  CHECK(tokenizer.options().model_max_length == 6);
  // The file's length and side apply if the options do not give them.
  CHECK(tokenizer.encode("A A a a a", {.truncation = Truncation::longest_first}).input_ids ==
        std::vector<std::int32_t>{1, 4, 5, 5, 5, 2});
  CHECK(tokenizer
            .encode("A A a a a",
                    {.truncation = Truncation::longest_first, .truncation_side = Side::right})
            .input_ids == std::vector<std::int32_t>{1, 4, 4, 5, 5, 2});
  CHECK(tokenizer.mask_id() == 3);
}

TEST_CASE("tokenizer_config.json overrides tokenizer.json for case, accents and ideographs") {
  const TemporaryDirectory folder;
  write(folder.path() / "tokenizer.json", small::small_json().dump());
  write(folder.path() / "tokenizer_config.json",
        R"({"do_lower_case": false, "tokenize_chinese_chars": true})");
  CHECK(tokens(BertTokenizer::from_pretrained(folder.path()), "hello HELLO") == "hello [UNK]");
  CHECK(tokens(BertTokenizer::from_json(folder.path() / "tokenizer.json"), "hello HELLO") ==
        "hello hello");
}

TEST_CASE("numbers and booleans of tokenizer_config.json are checked, and 1e30 means no limit") {
  const TemporaryDirectory folder;
  write(folder.path() / "tokenizer.json", small::small_json().dump());
  const auto result_with = [&](std::string_view config) -> std::string {
    write(folder.path() / "tokenizer_config.json", config);
    try {
      return "length " +
             std::to_string(
                 BertTokenizer::from_pretrained(folder.path()).options().model_max_length);
    } catch (const DataError& error) {
      return error.code();
    }
  };
  CHECK(result_with(R"({"model_max_length": 512})") == "length 512");
  CHECK(result_with(R"({"model_max_length": 1000000000000000019884624838656})") == "length 0");
  CHECK(result_with(R"({"model_max_length": null})") == "length 0");
  CHECK(result_with(R"({"model_max_length": -1})") == "tokenizers.wrong-type");
  CHECK(result_with(R"({"model_max_length": "512"})") == "tokenizers.wrong-type");
  CHECK(result_with(R"({"do_lower_case": "yes"})") == "tokenizers.wrong-type");
  CHECK(result_with(R"({"cls_token": 3})") == "tokenizers.wrong-type");
  CHECK(result_with(R"({"padding_side": "top"})") == "tokenizers.wrong-type");
  CHECK(result_with(R"({"added_tokens_decoder": {"x": {"content": "a"}}})") != "length 0");
  CHECK(result_with(R"({"additional_special_tokens": 3})") == "tokenizers.wrong-type");
  CHECK(result_with("{") == "tokenizers.bad-json");
}

TEST_CASE("missing flags in added_tokens_decoder have the defaults of AddedToken") {
  const TemporaryDirectory folder;
  write(folder.path() / "vocab.txt", lines({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"}));
  write(folder.path() / "tokenizer_config.json",
        R"({"added_tokens_decoder": {"6": {"content": "<b>"},
                                     "7": {"content": "<c>", "special": true}}})");
  const BertTokenizer tokenizer = BertTokenizer::from_pretrained(folder.path());
  int found = 0;
  for (const AddedToken& token : tokenizer.options().added_tokens) {
    if (token.content != "<b>" && token.content != "<c>") continue;
    ++found;
    CHECK(token.special == (token.content == "<c>"));
    CHECK(token.normalized == (token.content == "<b>"));
    CHECK_FALSE(token.single_word);
    CHECK_FALSE(token.lstrip);
    CHECK_FALSE(token.rstrip);
  }
  CHECK(found == 2);
}

TEST_CASE("the error for a key of added_tokens_decoder that is not a number names it") {
  const TemporaryDirectory folder;
  write(folder.path() / "tokenizer.json", small::small_json().dump());
  write(folder.path() / "tokenizer_config.json",
        R"({"added_tokens_decoder": {"x y": {"content": "a"}}})");
  CHECK_THROWS_WITH_AS(BertTokenizer::from_pretrained(folder.path()),
                       doctest::Contains("got \"x y\", expected an integer"), DataError);
}

TEST_CASE("a saved tokenizer loads equal, from either file") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["added_tokens"].push_back(small::added(17, "<x>"));
  file["truncation"] = {
      {"direction", "Left"}, {"max_length", 4}, {"strategy", "OnlyFirst"}, {"stride", 1}};
  file["padding"] = {{"strategy", "BatchLongest"}, {"direction", "Left"},
                     {"pad_to_multiple_of", 8},    {"pad_id", 0},
                     {"pad_type_id", 0},           {"pad_token", "[PAD]"}};
  file["normalizer"]["strip_accents"] = false;
  const BertTokenizer first = small::load(folder.path(), file);
  const fs::path saved = folder.path() / "a" / "b";
  first.save_pretrained(saved);
  CHECK(json::parse(std::ifstream(saved / "tokenizer.json")) == file);
  const BertTokenizer second = BertTokenizer::from_pretrained(saved);
  fs::remove(saved / "tokenizer.json");
  const BertTokenizer third = BertTokenizer::from_pretrained(saved);
  for (const char* text : {"Hello \u00e9 <x> played", "\u4e2d[MASK]", ""}) {
    CHECK(second.encode(text).input_ids == first.encode(text).input_ids);
    CHECK(third.encode(text).input_ids == first.encode(text).input_ids);
  }
  CHECK(second.stored_settings().encode.max_length == 4);
  CHECK(third.options().padding_side == Side::left);
}

TEST_CASE("a tokenizer without a post-processor or decoder is saved without them") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["post_processor"] = nullptr;
  file["decoder"] = nullptr;
  small::load(folder.path(), file).save_pretrained(folder.path() / "saved");
  CHECK(json::parse(std::ifstream(folder.path() / "saved/tokenizer.json")) == file);
}

TEST_CASE("a folder that cannot be written is an IoError") {
  const TemporaryDirectory folder;
  write(folder.path() / "file", "");
  CHECK_THROWS_AS(small::tokenizer().save_pretrained(folder.path() / "file" / "inside"), IoError);
}

}  // namespace tokenizers_tokenizer_files_test
