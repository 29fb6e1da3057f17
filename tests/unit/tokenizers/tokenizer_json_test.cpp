#include <doctest/doctest.h>

#include <functional>

#include "hasten/base/error.h"
#include "small_tokenizer.h"

namespace tokenizers_tokenizer_json_test {

using namespace hasten;
using small::added;
using small::json;

namespace {

// The error code for a changed tokenizer.json, or "read" if there is no error.
std::string code_after(const std::function<void(json&)>& change) {
  const TemporaryDirectory folder;
  json file = small::small_json();
  change(file);
  try {
    small::load(folder.path(), file);
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find("tokenizer.json") != std::string::npos);
    return error.code();
  }
  return "read";
}

std::string code_of_text(std::string_view content) {
  const TemporaryDirectory folder;
  small::write(folder.path() / "tokenizer.json", content);
  try {
    BertTokenizer::from_json(folder.path() / "tokenizer.json");
  } catch (const Error& error) {
    return error.code();
  }
  return "read";
}

}  // namespace

TEST_CASE("the error for a file that is not JSON has the position of the error") {
  CHECK(code_of_text("") == "tokenizers.bad-json");
  CHECK(code_of_text("{\"version\": ") == "tokenizers.bad-json");
  CHECK(code_of_text("version https://git-lfs.github.com/spec/v1\n") == "tokenizers.bad-json");
  CHECK(code_of_text("{\"a\": \"\xff\"}") == "tokenizers.bad-json");
  CHECK(code_of_text("{\"a\": 1e999}") == "tokenizers.bad-json");
  CHECK(code_of_text("[]") == "tokenizers.wrong-type");
  CHECK(code_of_text("{}") == "tokenizers.missing-key");
  CHECK(code_of_text(std::string(100000, '[')) == "tokenizers.bad-json");
}

TEST_CASE("a missing file is an IoError") {
  const TemporaryDirectory folder;
  CHECK_THROWS_AS(BertTokenizer::from_json(folder.path() / "tokenizer.json"), IoError);
  CHECK_THROWS_AS(BertTokenizer::from_json(folder.path()), IoError);
}

TEST_CASE("other models, normalizers, processors, decoders and versions are refused by name") {
  CHECK(code_after([](json& file) { file["model"]["type"] = "BPE"; }) ==
        "tokenizers.unknown-model");
  CHECK(code_after([](json& file) {
          file["model"].erase("type");
          file["model"]["merges"] = json::array();
        }) == "tokenizers.unknown-model");
  CHECK(code_after([](json& file) { file["normalizer"]["type"] = "NFC"; }) ==
        "tokenizers.unknown-normalizer");
  CHECK(code_after([](json& file) { file["normalizer"] = nullptr; }) ==
        "tokenizers.unknown-normalizer");
  CHECK(code_after([](json& file) { file["pre_tokenizer"]["type"] = "Whitespace"; }) ==
        "tokenizers.unknown-pre-tokenizer");
  CHECK(code_after([](json& file) { file.erase("pre_tokenizer"); }) ==
        "tokenizers.unknown-pre-tokenizer");
  CHECK(code_after([](json& file) { file["post_processor"]["type"] = "RobertaProcessing"; }) ==
        "tokenizers.unknown-post-processor");
  CHECK(code_after([](json& file) { file["decoder"]["type"] = "ByteLevel"; }) ==
        "tokenizers.unknown-decoder");
  CHECK(code_after([](json& file) { file["version"] = "2.0"; }) == "tokenizers.unknown-version");
}

TEST_CASE("parts that old files lack have defaults") {
  CHECK(code_after([](json& file) {
          file.erase("version");
          file.erase("truncation");
          file.erase("padding");
          file.erase("added_tokens");
          file["model"].erase("type");
        }) == "read");
}

TEST_CASE("values of the wrong type are refused with their position") {
  CHECK(code_after([](json& file) { file["model"] = 3; }) == "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["vocab"] = json::array(); }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["unk_token"] = 1; }) == "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["max_input_chars_per_word"] = "100"; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["max_input_chars_per_word"] = -1; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["max_input_chars_per_word"] = UINT64_MAX; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["normalizer"]["lowercase"] = 1; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["normalizer"].erase("clean_text"); }) ==
        "tokenizers.missing-key");
  CHECK(code_after([](json& file) { file["normalizer"]["strip_accents"] = "no"; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["added_tokens"] = json::object(); }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["added_tokens"][0] = "[PAD]"; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["added_tokens"][0].erase("lstrip"); }) ==
        "tokenizers.missing-key");
  CHECK(code_after([](json& file) { file["decoder"]["cleanup"] = nullptr; }) ==
        "tokenizers.missing-key");
}

TEST_CASE("ids of the vocabulary must be 0, 1, 2 and so on, each once") {
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = 10; }) ==
        "tokenizers.bad-vocabulary");  // the id 10 occurs twice
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = 17; }) ==
        "tokenizers.bad-vocabulary");  // a gap at 11
  CHECK(code_after([](json& file) { file["model"]["vocab"].erase("b"); }) ==
        "tokenizers.bad-vocabulary");  // the same gap
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = -1; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = 11.0; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = "11"; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = UINT64_MAX; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) { file["model"]["vocab"]["b"] = 4294967295u; }) ==
        "tokenizers.wrong-type");
}

TEST_CASE("tokens that the parts name must be in the vocabulary, with the same ids") {
  CHECK(code_after([](json& file) { file["model"]["unk_token"] = "[OTHER]"; }) ==
        "tokenizers.missing-token");
  const auto cls = [](const json& ids, const json& tokens) {
    return code_after([&](json& file) {
      file["post_processor"]["special_tokens"]["[CLS]"]["ids"] = ids;
      file["post_processor"]["special_tokens"]["[CLS]"]["tokens"] = tokens;
    });
  };
  CHECK(cls({2}, {"[CLS]"}) == "read");
  CHECK(cls({17}, {"[CLS]"}) == "tokenizers.missing-token");  // beyond the end
  CHECK(cls({3}, {"[CLS]"}) == "tokenizers.missing-token");   // another token's id
  CHECK(cls({2, 10}, {"[CLS]", "a"}) == "read");
  CHECK(cls({2, 10}, {"[CLS]"}) == "tokenizers.bad-template");
  CHECK(cls({-1}, {"[CLS]"}) == "tokenizers.wrong-type");
}

TEST_CASE("templates must name existing texts and defined special tokens") {
  using small::piece;
  CHECK(code_after([](json& file) { file["post_processor"]["special_tokens"].erase("[SEP]"); }) ==
        "tokenizers.bad-template");
  CHECK(code_after([](json& file) {
          file["post_processor"]["single"][1] = piece("Sequence", "B", 0);
        }) == "tokenizers.bad-template");
  CHECK(code_after([](json& file) {
          file["post_processor"]["pair"][1] = piece("Sequence", "C", 0);
        }) == "tokenizers.bad-template");
  CHECK(code_after([](json& file) {
          file["post_processor"]["single"][1] = piece("Other", "A", 0);
        }) == "tokenizers.missing-key");
  CHECK(code_after([](json& file) { file["post_processor"]["single"][1] = "$A"; }) ==
        "tokenizers.wrong-type");
  CHECK(code_after([](json& file) {
          file["post_processor"]["single"][1] = piece("Sequence", "A", -1);
        }) == "tokenizers.wrong-type");
}

TEST_CASE("added tokens have the id of the vocabulary, or the next one after it") {
  const auto code_with = [](std::initializer_list<json> more) {
    return code_after([&](json& file) {
      for (const json& token : more) file["added_tokens"].push_back(token);
    });
  };
  CHECK(code_with({added(17, "<x>"), added(18, "<y>")}) == "read");
  CHECK(code_with({added(18, "<x>")}) == "tokenizers.bad-added-token");
  CHECK(code_with({added(17, "hello")}) == "tokenizers.bad-added-token");
  CHECK(code_with({added(17, "<x>"), added(18, "<x>")}) == "tokenizers.bad-added-token");
  CHECK(code_with({added(17, "")}) == "tokenizers.bad-added-token");
  CHECK(code_with({added(-1, "<x>")}) == "tokenizers.wrong-type");
}

TEST_CASE("added tokens after the vocabulary are ordinary tokens") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["added_tokens"].push_back(added(17, "<x>"));
  const BertTokenizer tokenizer = small::load(folder.path(), file);
  CHECK(tokenizer.vocab_size() == 18);
  CHECK(tokenizer.token_to_id("<x>") == 17);
  CHECK(tokenizer.id_to_token(17) == "<x>");
  CHECK(small::tokens(tokenizer, "a<x>b") == "a <x> b");
  CHECK(tokenizer.decode(std::vector<std::int32_t>{10, 17}) == "a <x>");
}

TEST_CASE("BertProcessing equals the usual template, and a missing post-processor adds nothing") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["post_processor"] = {
      {"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}};
  CHECK(small::load(folder.path(), file).encode("a", "b").input_ids ==
        small::tokenizer().encode("a", "b").input_ids);
  CHECK(small::load(folder.path(), file).encode("a", "b").token_type_ids ==
        small::tokenizer().encode("a", "b").token_type_ids);
  file["post_processor"]["cls"] = {"[CLS]"};
  CHECK_THROWS_AS(small::load(folder.path(), file), DataError);
  file["post_processor"]["cls"] = {"[CLS]", 3};
  CHECK_THROWS_AS(small::load(folder.path(), file), DataError);
  file["post_processor"] = nullptr;
  const Encoding bare = small::load(folder.path(), file).encode("a", "b");
  CHECK(bare.input_ids == std::vector<std::int32_t>{10, 11});
  CHECK(bare.token_type_ids == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("stored truncation and padding are kept, and apply only when they are passed") {
  const TemporaryDirectory folder;
  json file = small::small_json();
  file["truncation"] = {
      {"direction", "Left"}, {"max_length", 4}, {"strategy", "OnlyFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 6}}}, {"direction", "Right"},
                     {"pad_to_multiple_of", 4},    {"pad_id", 0},
                     {"pad_type_id", 1},           {"pad_token", "[PAD]"}};
  const BertTokenizer tokenizer = small::load(folder.path(), file);
  CHECK(tokenizer.encode("a b a b a").size() == 7);
  const StoredSettings& stored = tokenizer.stored_settings();
  std::vector<Encoding> rows{tokenizer.encode("a b a b hello", stored.encode)};
  tokenizer.pad(rows, stored.padding.value());
  CHECK(rows[0].input_ids == std::vector<std::int32_t>{2, 11, 5, 3, 0, 0, 0, 0});
  CHECK(rows[0].token_type_ids == std::vector<std::int32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(code_after([&](json& other) {
          other["truncation"] = {{"max_length", 4}, {"strategy", "Other"}, {"stride", 0}};
        }) == "tokenizers.wrong-type");
  CHECK(code_after([&](json& other) {
          other["padding"] = {{"strategy", 3}};
        }) == "tokenizers.wrong-type");
}

}  // namespace tokenizers_tokenizer_json_test
