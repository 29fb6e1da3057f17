// The manifest of a model's weights: a change of a file is found when the weights are loaded, and a
// save at the same time or an interrupted one never looks like a change.
#include "formats/model_manifest.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "hasten/models/lora.h"
#include "unit/change_byte.h"
#include "unit/code_of.h"

namespace formats_model_manifest_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

constexpr const char* kManifest = "model_manifest.json";

TensorDict weights_of(double value) {
  return {
      {"a", at::full({100}, value)}, {"b", at::full({50}, value)}, {"c", at::full({30}, value)}};
}

std::string load_error(const fs::path& folder) {
  try {
    load_weights(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string load_code(const fs::path& folder) {
  return code_of([&] { load_weights(folder); });
}

}  // namespace

TEST_CASE("model manifest: a changed bit of the weights is found, and the tensor is named") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "model.safetensors";
  save_weights(folder.path(), weights_of(1));
  write_file_atomically(folder.path() / "config.json", "{}");
  REQUIRE(fs::exists(folder.path() / kManifest));
  CHECK(load_error(folder.path()).empty());
  const std::size_t bytes = fs::file_size(file);
  for (std::size_t at = 0; at < bytes; at += 7) {
    change_byte_unnoticed(file, at);
    CHECK(load_code(folder.path()) == "weights.damaged");
    change_byte_unnoticed(file, at);
  }
  change_byte_unnoticed(file, bytes - 1);
  CHECK(load_error(folder.path()).find("tensor \"c\"") != std::string::npos);
  CHECK(load_error(folder.path()).find("delete model_manifest.json") != std::string::npos);
  // Another save replaces the weights and the manifest. Files that it does not list may change.
  save_weights(folder.path(), weights_of(2));
  write_file_atomically(folder.path() / "config.json", "{\"a\": 1}");
  CHECK(load_error(folder.path()).empty());
}

TEST_CASE(
    "model manifest: shards and their index are listed, and a save of one file replaces them") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(1), {.max_shard_size = 450});
  CHECK(load_error(folder.path()).empty());
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json"}) {
    CAPTURE(name);
    change_byte_unnoticed(folder.path() / name, fs::file_size(folder.path() / name) - 1);
    CHECK(load_code(folder.path()) != "none");
    change_byte_unnoticed(folder.path() / name, fs::file_size(folder.path() / name) - 1);
  }
  // The index is a part of the save as well: this one is valid, but has another number.
  const fs::path index = folder.path() / "model.safetensors.index.json";
  const std::string before = read_file(index);
  auto json = nlohmann::json::parse(before);
  json["metadata"]["total_size"] = 721;
  write_file_atomically(index, json.dump(2));
  CHECK(load_code(folder.path()) == "weights.damaged");
  write_file_atomically(index, before);
  CHECK(load_error(folder.path()).empty());
  save_weights(folder.path(), weights_of(2));
  CHECK(load_error(folder.path()).empty());
  save_weights(folder.path(), weights_of(3), {.max_shard_size = 450});
  CHECK(load_error(folder.path()).empty());
}

TEST_CASE("model manifest: without a manifest, weights are loaded as those of other programs are") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(1));
  // If another program replaces the weights, loading them is an error that names the manifest.
  save_safetensors(folder.path() / "model.safetensors", weights_of(2));
  CHECK(load_code(folder.path()) == "weights.damaged");
  fs::remove(folder.path() / kManifest);
  CHECK(load_error(folder.path()).empty());
}

TEST_CASE("model manifest: weights that a manifest does not list are refused") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(1), {.max_shard_size = 450});
  save_safetensors(folder.path() / "model.safetensors", weights_of(2));
  CHECK(load_code(folder.path()) == "weights.damaged");
}

TEST_CASE("model manifest: a damaged or newer manifest is refused") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(1));
  const fs::path manifest = folder.path() / kManifest;
  const std::string text = read_file(manifest);
  for (std::size_t at = 0; at < text.size(); ++at) {
    change_byte_unnoticed(manifest, at);
    CHECK(load_code(folder.path()) == "weights.manifest");
    change_byte_unnoticed(manifest, at);
  }
  CHECK(load_error(folder.path()).empty());
}

TEST_CASE("model manifest: a pipe in the place of the manifest or the weights is refused") {
  for (const std::string name : {kManifest, "model.safetensors"}) {
    CAPTURE(name);
    const TemporaryDirectory folder;
    save_weights(folder.path(), weights_of(1));
    fs::remove(folder.path() / name);
    REQUIRE(::mkfifo((folder.path() / name).c_str(), 0600) == 0);
    CHECK(load_code(folder.path()) != "none");
  }
}

TEST_CASE("model manifest: the checksums are those of the bytes in memory") {
  const TemporaryDirectory folder;
  with_model_manifest(folder.path(), [&] {
    save_safetensors(folder.path() / "model.safetensors", weights_of(1));
    change_byte_unnoticed(folder.path() / "model.safetensors", 500);
  });
  CHECK(load_code(folder.path()) == "weights.damaged");
}

TEST_CASE("model manifest: a save that fails leaves no manifest and the old weights") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(1));
  CHECK(code_of([&] {
          with_model_manifest(folder.path(),
                              [] { throw IoError("io.write", {.what = "a full disk"}); });
        }) == "io.write");
  CHECK_FALSE(fs::exists(folder.path() / kManifest));
  CHECK(load_weights(folder.path()).at("a").equal(weights_of(1).at("a")));
}

TEST_CASE("model manifest: weights of a checkpoint are verified by the checkpoint's manifest") {
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "model.safetensors", weights_of(1));
  write_file_atomically(folder.path() / "state.json", "{}");
  write_manifest(folder.path());
  CHECK(load_error(folder.path()).empty());
  write_file_atomically(folder.path() / "state.json", "{\"a\": 1}");
  CHECK(load_error(folder.path()).empty());  // only the weights are read
  change_byte_unnoticed(folder.path() / "model.safetensors", 400);
  CHECK(load_code(folder.path()) == "checkpoint.damaged");
}

TEST_CASE("model manifest: weights of a module and of adapters are verified") {
  const TemporaryDirectory folder;
  torch::nn::Sequential net(torch::nn::Linear(4, 4));
  save_weights(*net, folder.path() / "net");
  change_byte_unnoticed(folder.path() / "net" / "model.safetensors", 150);
  CHECK(code_of([&] { load_weights(*net, folder.path() / "net"); }) == "weights.damaged");

  add_lora(*net, {.target_modules = {"0"}});
  const fs::path adapters = folder.path() / "adapters";
  save_lora(*net, adapters);
  CHECK(code_of([&] { load_lora(*net, adapters); }) == "none");
  const fs::path file = adapters / "adapter_model.safetensors";
  change_byte_unnoticed(file, fs::file_size(file) - 1);
  CHECK(code_of([&] { load_lora(*net, adapters); }) == "weights.damaged");
}

TEST_CASE("model manifest: a reader during saves finds the weights of one of them, and no damage") {
  const TemporaryDirectory folder;
  save_weights(folder.path(), weights_of(0));
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (int save = 1; !ends; ++save) save_weights(folder.path(), weights_of(save));
  });
  std::string error;
  for (int load = 0; load < 300 && error.empty(); ++load) {
    error = load_error(folder.path());
    if (!error.empty()) break;
    const TensorDict weights = load_weights(folder.path());
    if (weights.at("a")[0].item<float>() != weights.at("c")[0].item<float>()) error = "mixed";
  }
  ends = true;
  writer.join();
  CHECK(error == "");
}

}  // namespace formats_model_manifest_test
