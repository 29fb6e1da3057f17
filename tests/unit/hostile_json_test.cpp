// Gives every reader of JSON files texts that would exhaust the stack or are ambiguous.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "base/strict_json.h"
#include "data/flat_json.h"
#include "data/json_object.h"
#include "exported/json_cursor.h"
#include "formats/safetensors_header.h"
#include "formats/weights_index.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/hash_chain.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/images.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/detail/bert_config.h"
#include "hasten/models/detail/gpt2_config.h"
#include "hasten/models/detail/llama_config.h"
#include "hasten/models/generation.h"
#include "hasten/models/lora.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "hasten/tokenizers/tokenizer.h"
#include "hasten/trainer/detail/trainer_state.h"
#include "hasten/trainer/exported_data.h"
#include "search/journal.h"
#include "track/logged_runs.h"
#include "unit/code_of.h"
#include "unit/json_test_suite.h"

namespace hostile_json_test {

using namespace hasten;

namespace {

namespace fs = std::filesystem;

// Returns a value inside `levels` nested lists.
std::string nested_value(std::size_t levels) {
  return std::string(levels, '[') + "1" + std::string(levels, ']');
}

const std::string& deep_value() {
  static const std::string text = nested_value(5'000'000);
  return text;
}

// Runs a reader on a file with the text.
std::string code_of_file(const std::string& name, const std::string& text,
                         const std::function<void(const fs::path& folder)>& read) {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / name, text);
  return code_of([&] { read(folder.path()); });
}

// A reader, a key whose value it reads, and the error code for a file that it refuses as a whole.
struct JsonReader {
  const char* file;
  const char* key;
  const char* code;
  std::function<void(const fs::path& folder)> read;
};

const std::vector<JsonReader>& object_readers() {
  static const std::vector<JsonReader> all = {
      {"config.json", "hidden_size", "models.config-json",
       [](const fs::path& f) { BertConfig::from_file(f / "config.json"); }},
      {"config.json", "n_embd", "models.config-json",
       [](const fs::path& f) { GPT2Config::from_file(f / "config.json"); }},
      {"config.json", "rope_scaling", "models.config-json",
       [](const fs::path& f) { LlamaConfig::from_file(f / "config.json"); }},
      {"config.json", "depths", "models.config-json",
       [](const fs::path& f) { ResNetConfig::from_json(read_file(f / "config.json"), "c"); }},
      {"config.json", "image_size", "models.config-json",
       [](const fs::path& f) { ViTConfig::from_json(read_file(f / "config.json"), "c"); }},
      {"generation_config.json", "early_stopping", "models.config-json",
       [](const fs::path& f) { generation_defaults(f.string()); }},
      {"generation_config.json", "bad_words_ids", "models.config-json",
       [](const fs::path& f) { generation_defaults(f.string()); }},
      {"adapter_config.json", "peft_type", "models.lora-file",
       [](const fs::path& f) {
         save_safetensors(f / "adapter_model.safetensors", {{"x", at::zeros({1})}});
         torch::nn::Linear model(2, 2);
         load_lora(*model, f);
       }},
      {"preprocessor_config.json", "crop_size", "data.image-options",
       [](const fs::path& f) {
         ImageProcessing::from_json(read_file(f / "preprocessor_config.json"), "p", {});
       }},
      {"model.safetensors.index.json", "weight_map", "weights.index",
       [](const fs::path& f) { read_weights_index(f / "model.safetensors.index.json"); }},
      {"trainer_state.json", "log_history", "trainer.state",
       [](const fs::path& f) { TrainerState::from_file(f / "trainer_state.json"); }},
      {"training_position.json", "loader", "checkpoint.position",
       [](const fs::path& f) { load_training_position(f); }},
      {"hasten_manifest.json", "files", "checkpoint.manifest",
       [](const fs::path& f) { verify_checkpoint(f); }},
      {"hash_chain.jsonl", "loss", "checkpoint.broken-chain",
       [](const fs::path& f) {
         write_file_atomically(f / "lines.jsonl", read_file(f / "hash_chain.jsonl") + "\n");
         read_hash_chain(f / "lines.jsonl");
       }},
      {"tokenizer.json", "normalizer", "tokenizers.bad-json",
       [](const fs::path& f) { Tokenizer::from_file(f / "tokenizer.json"); }},
      {"tokenizer.json", "normalizer", "tokenizers.bad-json",
       [](const fs::path& f) { BertTokenizer::from_json(f / "tokenizer.json"); }},
      {"journal.jsonl", "search", "search.journal",
       [](const fs::path& f) {
         write_file_atomically(f / "search/journal.jsonl", read_file(f / "journal.jsonl") + "\n");
         SearchJournal(f / "search", {{"metric", "loss"}});
       }},
      {"trainer_state.json", "log_history", "track.log-file",
       [](const fs::path& f) { read_logged_runs({f / "trainer_state.json"}); }}};
  return all;
}

std::string code_of_object(const JsonReader& reader, const std::string& text) {
  const TemporaryDirectory folder;
  make_directories(folder.path() / "search");
  write_file_atomically(folder.path() / reader.file, text);
  return code_of([&] { reader.read(folder.path()); });
}

}  // namespace

TEST_CASE("hostile JSON: ten megabytes of brackets are an error of every reader") {
  const std::string open(10'000'000, '[');
  for (const JsonReader& reader : object_readers()) {
    CAPTURE(std::string(reader.file));
    CAPTURE(std::string(reader.key));
    const std::string key = str("{\"", reader.key, "\": ");
    CHECK(code_of_object(reader, open) == reader.code);
    CHECK(code_of_object(reader, deep_value()) == reader.code);
    CHECK(code_of_object(reader, key + deep_value() + "}") == reader.code);
  }
}

TEST_CASE("hostile JSON: every reader refuses the invalid texts of JSONTestSuite") {
  for (const test::JsonText& text : test::json_test_suite()) {
    if (!text.is_invalid()) continue;
    CAPTURE(text.name);
    for (const JsonReader& reader : object_readers()) {
      CAPTURE(std::string(reader.file));
      CHECK(code_of_object(reader, text.text) == reader.code);
    }
    std::string header(8, '\0');
    for (std::size_t i = 0; i < 8; ++i)
      header[i] = static_cast<char>(text.text.size() >> (8 * i) & 0xFF);
    CHECK(code_of([&] { safetensors::parse_header(header + text.text, "file"); }) ==
          "safetensors.header");
    CHECK(code_of([&] { exported::JsonDocument::parse(text.text, "file"); }) == "exported.graph");
    CHECK(code_of([&] { hasten::detail::parse_json_object(text.text, "file", 1); }) == "text.json");
  }
}

TEST_CASE("hostile JSON: the fast reader of lines accepts no text that is not JSON") {
  // These names are the keys of the suite's objects.
  int accepted = 0;
  std::vector<std::string> fields;
  for (const test::JsonText& text : test::json_test_suite()) {
    CAPTURE(text.name);
    for (const char* name : {"a", "b", "id", "x", "key", "asd", "foo bar", "title", ""}) {
      if (!hasten::detail::read_flat_object(text.text, {name}, fields)) continue;
      ++accepted;
      const nlohmann::json object = parse_json_or_discard(text.text);
      REQUIRE(object.is_object());
      const nlohmann::json& value = object.at(name);
      const std::string expected = value.is_string() ? value.get<std::string>()
                                   : value.is_null() ? ""
                                                     : value.dump();
      CHECK(fields.at(0) == expected);
    }
  }
  CHECK(accepted >= 3);
}

TEST_CASE("hostile JSON: a key twice and bytes that are not UTF-8 are errors of every reader") {
  for (const JsonReader& reader : object_readers()) {
    CAPTURE(std::string(reader.file));
    CAPTURE(std::string(reader.key));
    CHECK(code_of_object(reader, str("{\"", reader.key, "\": \"\xC3\"}")) == reader.code);
    // The vocabularies of tokenizers are read without this check, which would double the time.
    if (std::string(reader.code) == "tokenizers.bad-json") continue;
    const std::string twice = str("{\"", reader.key, "\": 1, \"", reader.key, "\": 1}");
    CHECK(code_of_object(reader, twice) == reader.code);
  }
}

TEST_CASE("hostile JSON: numbers beyond 64 bits are refused and not converted") {
  const auto code = [](const char* name, const std::string& text, auto read) {
    return code_of_file(name, text, [&](const fs::path& f) { read(f / name); });
  };
  for (const char* number : {"1e300", "-1e300", "9223372036854775808", "1.5", "\"1\""}) {
    CAPTURE(number);
    CHECK(code("config.json", str("{\"model_type\": \"bert\", \"hidden_size\": ", number, "}"),
               [](const fs::path& file) { BertConfig::from_file(file); }) == "models.config-value");
    CHECK(code("config.json", str("{\"model_type\": \"resnet\", \"depths\": [", number, "]}"),
               [](const fs::path& file) { ResNetConfig::from_json(read_file(file), "c"); }) ==
          "models.config-value");
    CHECK(code("trainer_state.json", str("{\"log_history\": [], \"global_step\": ", number, "}"),
               [](const fs::path& file) { TrainerState::from_file(file); }) == "trainer.state");
    CHECK(code("trainer_state.json",
               str("{\"log_history\": [], \"best_global_step\": ", number, "}"),
               [](const fs::path& file) { TrainerState::from_file(file); }) == "trainer.state");
    CHECK(code("metrics.jsonl", str("{\"step\": ", number, ", \"loss\": 1}\n"),
               [](const fs::path& file) { read_logged_runs({file}); }) == "track.no-values");
  }
  // A number that is not a count is read, and written again as it is.
  CHECK(code("trainer_state.json",
             "{\"log_history\": [{\"step\": 1e300, \"a_mem_b\": 0.5}], \"eval_steps\": -1e300}",
             [](const fs::path& file) {
               const std::string written = TrainerState::from_file(file).to_json();
               for (const char* each :
                    {"\"step\": 1e+300", "\"a_mem_b\": 0.5", "\"eval_steps\": -1e+300"})
                 CHECK(written.find(each) != std::string::npos);
             }) == "none");
  CHECK(code("p.json", "{\"size\": {\"shortest_edge\": 200}, \"crop_pct\": 1e-300}",
             [](const fs::path& file) { ImageProcessing::from_json(read_file(file), "p", {}); }) ==
        "data.image-options");
  // A whole number may be written as a float.
  CHECK(code("metrics.jsonl", "{\"step\": 2.0, \"loss\": 1}\n", [](const fs::path& file) {
          CHECK(read_logged_runs({file}).at(0).curves.at("loss").contains(2));
        }) == "none");
}

TEST_CASE("hostile JSON: a line with a deeply nested value is skipped") {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "metrics.jsonl",
                        "{\"step\": 1, \"a\": 2}\n{\"step\": 2, \"a\": " + deep_value() + "}\n");
  const auto runs = read_logged_runs({folder.path() / "metrics.jsonl"});
  CHECK(runs.at(0).curves.at("a") == LoggedCurve{{1, 2.0}});
}

TEST_CASE("hostile JSON: arrays in a table have at most 64 dimensions") {
  const TemporaryDirectory folder;
  const fs::path model = folder.path() / "model.pt2", data = folder.path() / "data.tsv";
  fs::copy_file(HASTEN_TEST_DATA "/oracle/data/exported/mlp.pt2", model);
  const auto module = load_exported(model.string());
  TrainOptions options;
  options.model = model.string();
  options.data = data.string();
  for (const std::size_t levels : {std::size_t{65}, std::size_t{5'000'000}}) {
    write_file_atomically(data, "x\tlabels\n" + nested_value(levels) + "\t1\n");
    CHECK(code_of([&] { ExportedFiles(options, *module); }) == "text.number");
  }
}

TEST_CASE("hostile JSON: class names are not read from a deeply nested configuration") {
  const TemporaryDirectory folder;
  const fs::path model = folder.path() / "model.pt2", data = folder.path() / "data.tsv";
  fs::copy_file(HASTEN_TEST_DATA "/oracle/data/exported/mlp.pt2", model);
  write_file_atomically(folder.path() / "config.json", "{\"id2label\": " + deep_value() + "}");
  write_file_atomically(data, "x\tlabels\n[1, 2, 3, 4, 5]\t1\n");
  TrainOptions options;
  options.model = model.string();
  options.data = data.string();
  CHECK(code_of([&] { ExportedFiles(options, *load_exported(model.string())); }) == "none");
}

}  // namespace hostile_json_test
