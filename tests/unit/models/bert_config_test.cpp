// Contradictory configurations are refused, and the error names the key. Valid configurations
// survive a round trip.
#include "hasten/models/detail/bert_config.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "hasten/models/pretrained_model.h"
#include "unit/code_of.h"

namespace models_bert_config_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

Json small() {
  return {{"model_type", "bert"},         {"vocab_size", 100},        {"hidden_size", 16},
          {"num_hidden_layers", 2},       {"num_attention_heads", 2}, {"intermediate_size", 32},
          {"max_position_embeddings", 32}};
}

BertConfig read(const Json& json) { return BertConfig::from_json(json.dump(), "config.json"); }

std::string text_of(const Json& json) {
  try {
    read(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("bert config: the error for an invalid value names its key") {
  const std::vector<std::pair<std::string, Json>> bad = {
      {"vocab_size", 0},
      {"vocab_size", "100"},
      {"vocab_size", 1.5},
      {"hidden_size", -16},
      {"hidden_size", 1LL << 40},
      {"hidden_size", 15},
      {"num_attention_heads", 0},
      {"num_attention_heads", 3},
      {"num_hidden_layers", -1},
      {"num_hidden_layers", 1000000},
      {"intermediate_size", 0},
      {"max_position_embeddings", 0},
      {"type_vocab_size", 0},
      {"hidden_dropout_prob", 1.0},
      {"hidden_dropout_prob", -0.1},
      {"hidden_dropout_prob", "0.1"},
      {"attention_probs_dropout_prob", 2},
      {"classifier_dropout", 1.5},
      {"initializer_range", -1},
      {"layer_norm_eps", -1e-5},
      {"hidden_act", "swoosh"},
      {"hidden_act", 3},
      {"pad_token_id", 100},
      {"num_labels", 0},
      {"problem_type", "ranking"},
      {"id2label", Json::array({"a", "b"})},
      {"id2label", {{"x", "a"}}},
      {"id2label", {{"0", 7}}},
      {"architectures", "BertModel"},
      {"is_decoder", true},
      {"add_cross_attention", true},
      {"position_embedding_type", "relative_key"},
      {"tie_word_embeddings", "yes"},
  };
  for (const auto& [key, value] : bad) {
    Json json = small();
    json[key] = value;
    CAPTURE(json.dump());
    CHECK(code_of([&] { read(json); }) == "models.config-value");
    const std::string text = text_of(json);
    // The error for heads that do not divide the hidden size names the hidden size.
    CHECK_MESSAGE(text.find("config.json, key ") == 0, text);
    if (key != "num_attention_heads") CHECK_MESSAGE(text.find(key) != std::string::npos, text);
  }
}

TEST_CASE("bert config: other text and other models' configurations are refused") {
  CHECK(code_of([] { BertConfig::from_json("", "c"); }) == "models.config-json");
  CHECK(code_of([] { BertConfig::from_json("[1, 2]", "c"); }) == "models.config-json");
  try {
    BertConfig::from_json("\x80", "net/model.safetensors");
  } catch (const DataError& error) {
    CHECK(error.hint().find("name the folder of a model, or its config.json") == 0);
  }
  CHECK(code_of([] { BertConfig::from_json("{\"model_type\": \"bert\"", "c"); }) ==
        "models.config-json");
  Json other = small();
  other["model_type"] = "gpt2";
  CHECK(code_of([&] { read(other); }) == "models.unknown-type");
  other.erase("model_type");
  CHECK(code_of([&] { read(other); }) == "models.unknown-type");
}

TEST_CASE("bert config: null stands for the default, and unknown keys are kept") {
  Json json = small();
  json["hidden_dropout_prob"] = nullptr;
  json["pad_token_id"] = nullptr;
  json["quantization"] = {{"bits", 4}};
  const BertConfig config = read(json);
  CHECK(config.hidden_dropout_prob == 0.1);
  CHECK(config.pad_token_id == -1);
  const Json written = Json::parse(config.to_json());
  CHECK(written["quantization"]["bits"] == 4);
  CHECK(written["pad_token_id"].is_null());
  CHECK(read(written).to_json() == config.to_json());
}

TEST_CASE("bert config: labels are saved with their names and restored") {
  BertConfig config = read(small());
  config.num_labels = 3;
  config.id2label = {{0, "admin"}, {2, "web"}};
  const BertConfig again = BertConfig::from_json(config.to_json(), "c");
  CHECK(again.num_labels == 3);
  CHECK(again.id2label ==
        std::map<std::int64_t, std::string>{{0, "admin"}, {1, "LABEL_1"}, {2, "web"}});
}

TEST_CASE("models: a name that is not a model is refused before anything is created") {
  const TemporaryDirectory folder;
  const auto load = [](const std::filesystem::path& what) {
    return code_of([&] { load_model(what.string(), {}); });
  };
  CHECK(load("bert-enormous") == "models.not-found");
  CHECK(load(folder.path()) == "models.not-found");
  write_file_atomically(folder.path() / "config.json", small().dump());
  CHECK(load(folder.path()) == "weights.missing-file");
  write_file_atomically(folder.path() / "model.safetensors", "not a safetensors file");
  CHECK(load(folder.path()).substr(0, 12) == "safetensors.");
}

}  // namespace models_bert_config_test
