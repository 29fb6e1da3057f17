#include "hasten/formats/weights.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "formats/model_files.h"
#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace formats_weights_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

const fs::path data = fs::path(HASTEN_TEST_DATA) / "unit/formats/data";
const fs::path sharded = data / "sharded";

// The names of the folder's files, except the manifest of the weights.
std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  names.erase("model_manifest.json");
  return names;
}

// Returns the error code of loading a copy of the sharded folder with another index.
std::string code_with_index(const std::string& index) {
  TemporaryDirectory scratch;
  fs::copy(sharded, scratch.path(), fs::copy_options::recursive);
  write_file_atomically(scratch.path() / "model.safetensors.index.json", index);
  return code_of([&] { load_weights(scratch.path()); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TensorDict filled_with(double value) {
  return {{"small", at::full({10}, value)}, {"large", at::full({3000}, value)}};
}

// Returns the value that all weights of the folder have.
double only_value(const fs::path& folder) {
  const TensorDict weights = load_weights(folder);
  const double value = weights.at("small")[0].item<double>();
  for (const auto& [name, tensor] : weights)
    CHECK_MESSAGE(tensor.eq(value).all().item<bool>(), "a mix: ", name);
  return value;
}

}  // namespace

TEST_CASE("weights: shards and index equal those of huggingface_hub byte for byte") {
  TemporaryDirectory scratch;
  const TensorDict weights = load_weights(sharded);
  CHECK(weights.size() == 5);
  CHECK(weights.at("large").sum().item<float>() == 780);
  save_weights(scratch.path(), weights,
               {.max_shard_size = 100, .order = {"b", "a", "large", "c", "é"}});
  CHECK(files_in(scratch.path()) == files_in(sharded));
  for (const std::string& name : files_in(sharded)) {
    CAPTURE(name);
    CHECK(read_file(scratch.path() / name) == read_file(sharded / name));
  }
}

TEST_CASE("weights: an index or a single file can be named, a folder prefers the single file") {
  CHECK(load_weights(sharded / "model.safetensors.index.json").size() == 5);
  CHECK(load_weights(data / "dtypes.safetensors").size() == 20);
  TemporaryDirectory scratch;
  fs::copy(sharded, scratch.path(), fs::copy_options::recursive);
  fs::copy(data / "nothing.safetensors", scratch.path() / "model.safetensors");
  CHECK(load_weights(scratch.path()).empty());
}

TEST_CASE("weights: all three shards of a transformers folder load") {
  const fs::path folder = fs::path(HASTEN_TEST_DATA) / "oracle/data/models/bert_sharded";
  const TensorDict weights = load_weights(folder);
  std::int64_t parameters = 0;
  for (const auto& [name, tensor] : weights) parameters += tensor.numel();
  CHECK(parameters == 19168);
}

TEST_CASE("weights: saving again with another number of files removes all old ones") {
  TemporaryDirectory scratch;
  const TensorDict weights = {{"a", at::ones({10})}, {"b", at::ones({10})}, {"c", at::ones({10})}};
  write_file_atomically(scratch.path() / "config.json", "{}");
  save_weights(scratch.path(), weights, {.max_shard_size = 40});
  CHECK(files_in(scratch.path()).size() == 5);
  save_weights(scratch.path(), weights, {.max_shard_size = 80});
  CHECK(files_in(scratch.path()) ==
        std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                              "model-00002-of-00002.safetensors", "model.safetensors.index.json"});
  save_weights(scratch.path(), weights);
  CHECK(files_in(scratch.path()) == std::set<std::string>{"config.json", "model.safetensors"});
  save_weights(scratch.path(), weights, {.max_shard_size = 80});
  CHECK_FALSE(fs::exists(scratch.path() / "model.safetensors"));
  CHECK(load_weights(scratch.path()).size() == 3);
}

TEST_CASE("weights: the error for index and shards that disagree says what is missing") {
  const std::string index = read_file(sharded / "model.safetensors.index.json");
  CHECK(code_with_index(index) == "none");
  CHECK(code_with_index(replaced(index, "model-00001-of-00003", "model-00009-of-00003")) ==
        "weights.missing-file");
  CHECK(code_with_index(replaced(index, "\"a\"", "\"z\"")) == "weights.missing-tensor");
  CHECK(code_with_index(replaced(index, "    \"a\": \"model-00002-of-00003.safetensors\",\n",
                                 "")) == "weights.unlisted-tensor");
  CHECK(code_with_index(replaced(index, "\"a\": \"model-00002", "\"a\": \"model-00001")) ==
        "weights.missing-tensor");
}

TEST_CASE("weights: an invalid index, or one that leads out of its folder, is refused") {
  for (const char* index :
       {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {\"a\": 1}}",
        "{\"weight_map\": {\"a\": \"../x\"}}", "{\"weight_map\": {\"a\": \"/etc/passwd\"}}",
        "{\"weight_map\": {\"a\": \"..\"}}", "{\"weight_map\": {\"a\": \"\"}}",
        "{\"weight_map\": {\"a\": \"x\\u0000y\"}}", "{\"weight_map\": {\"a\"",
        "{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "{\"weight_map\": {\"\xff\": \"x\"}}"}) {
    CAPTURE(index);
    CHECK(code_with_index(index) == "weights.index");
  }
}

TEST_CASE("weights: the error for a folder without weights mentions a pickle if there is one") {
  TemporaryDirectory scratch;
  CHECK(code_of([&] { load_weights(scratch.path()); }) == "weights.missing-file");
  write_file_atomically(scratch.path() / "pytorch_model.bin", "x");
  try {
    load_weights(scratch.path());
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(error.hint().find("pickle") != std::string::npos);
  }
  CHECK(code_of([&] { load_weights(scratch.path() / "no-such"); }) == "io.open");
}

TEST_CASE("weights: memory shared between files is refused too, and options are checked") {
  TemporaryDirectory scratch;
  const at::Tensor weight = at::ones({10});
  const auto code = [&](const TensorDict& weights, const WeightsOptions& options) {
    return code_of([&] { save_weights(scratch.path() / "new", weights, options); });
  };
  CHECK(code({{"a", weight}, {"b", weight}}, {.max_shard_size = 40}) == "safetensors.shared");
  CHECK(code({{"a", weight}}, {.max_shard_size = 0}) == "weights.shard-size");
  CHECK(code({{"a", weight}}, {.order = {"b"}}) == "weights.order");
  CHECK(code({{"a", at::Tensor()}}, {}) == "safetensors.unsupported");
  CHECK_FALSE(fs::exists(scratch.path() / "new"));
  CHECK(code({}, {}) == "none");
  CHECK(load_weights(scratch.path() / "new").empty());
}

TEST_CASE("weights: a failed save over shards of the same names leaves the old ones") {
  TemporaryDirectory scratch;
  // The shard of the small tensor is written first. The shard of the large tensor exceeds the
  // limit.
  const WeightsOptions shards{.max_shard_size = 12000, .order = {"small", "large"}};
  save_weights(scratch.path(), filled_with(1), shards);
  const auto before = files_in(scratch.path());
  REQUIRE(before.size() == 3);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8000, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string code = code_of([&] { save_weights(scratch.path(), filled_with(2), shards); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(code == "io.write");
  CHECK(files_in(scratch.path()) == before);
  CHECK(only_value(scratch.path()) == 1);
  save_weights(scratch.path(), filled_with(2), shards);
  CHECK(files_in(scratch.path()) == before);
  CHECK(only_value(scratch.path()) == 2);
}

namespace {

// Stages a new model and moves it into `folder`.
void move_model(const fs::path& folder, const std::string& config, double value) {
  const StagedDirectory staged(folder / kStagedModel);
  write_file_atomically(staged.path() / "config.json", config);
  save_weights(staged.path(), filled_with(value));
  move_model_files(staged.path(), folder);
}

}  // namespace

TEST_CASE("model files: a move that fails halfway leaves no weights of two models") {
  TemporaryDirectory scratch;
  move_model(scratch.path(), "first", 1);
  write_file_atomically(scratch.path() / "README.md", "mine");
  CHECK(read_file(scratch.path() / "config.json") == "first");
  CHECK(only_value(scratch.path()) == 1);
  move_model(scratch.path(), "second", 2);
  CHECK(files_in(scratch.path()) ==
        std::set<std::string>{"README.md", "config.json", "model.safetensors"});
  CHECK(only_value(scratch.path()) == 2);

  // A folder has the name of a shard of the next model. Shards are moved after the configuration.
  fs::create_directories(scratch.path() / "model-00001-of-00002.safetensors" / "inside");
  const StagedDirectory staged(scratch.path() / kStagedModel);
  write_file_atomically(staged.path() / "config.json", "third");
  save_weights(staged.path(), filled_with(3), {.max_shard_size = 12000});
  CHECK(code_of([&] { move_model_files(staged.path(), scratch.path()); }) == "io.rename");
  CHECK(read_file(scratch.path() / "config.json") == "third");
  CHECK_FALSE(has_weights(scratch.path()));
}

}  // namespace formats_weights_test
