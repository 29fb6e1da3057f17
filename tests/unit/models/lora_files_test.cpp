// The files of adapters, in PEFT's format.
#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/bert.h"
#include "hasten/models/lora.h"
#include "unit/code_of.h"
#include "unit/data/error_of.h"
#include "unit/models/lora_nets.h"

namespace models_lora_files_test {

using namespace hasten;
namespace nn = torch::nn;
using namespace hasten::lora_nets;

TEST_CASE("lora: a file has the alpha of the adapter, even beyond 64 bits") {
  for (const double alpha : {6.0, 6.5, 1e19, -1e300}) {
    CAPTURE(alpha);
    const TemporaryDirectory folder("hasten-lora");
    const auto net = new_net();
    add_lora(*net, {.alpha = alpha, .target_modules = {"first"}});
    save_lora(*net, folder.path());
    const auto config = nlohmann::json::parse(read_file(folder.path() / "adapter_config.json"));
    CHECK(config.at("lora_alpha").is_number_integer() == (alpha == 6.0));
    CHECK(config.at("lora_alpha").get<double>() == alpha);
    CHECK(code_of([&] { load_lora(*net, folder.path()); }) == "none");
  }
}

TEST_CASE("lora: files have PEFT's names, and another model reads them") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2,
                  .alpha = 6,
                  .target_modules = {"first", "blocks.0"},
                  .modules_to_save = {"last"},
                  .bias = LoraBias::lora_only,
                  .task_type = "SEQ_CLS"});
  fill_b(*net);
  const torch::NoGradGuard no_grad;
  net->last->weight.add_(1);
  net->first->bias.add_(1);
  save_lora(*net, folder.path());
  std::string names;
  for (const auto& [name, tensor] : load_safetensors(folder.path() / "adapter_model.safetensors"))
    names += name + "\n";
  CHECK(names ==
        "base_model.model.blocks.0.lora_A.weight\n"
        "base_model.model.blocks.0.lora_B.weight\n"
        "base_model.model.first.base_layer.bias\n"
        "base_model.model.first.lora_A.weight\n"
        "base_model.model.first.lora_B.weight\n"
        "base_model.model.last.bias\n"
        "base_model.model.last.weight\n");
  const auto config = nlohmann::json::parse(read_file(folder.path() / "adapter_config.json"));
  CHECK(config.at("peft_type") == "LORA");
  CHECK(config.at("task_type") == "SEQ_CLS");
  CHECK(config.at("target_modules") == nlohmann::json::array({"first", "blocks.0"}));
  CHECK(config.at("lora_alpha") == 6);

  const auto other = new_net();
  load_lora(*other, folder.path());
  const at::Tensor x = torch::randn({5, 4});
  CHECK(at::equal(other->forward(x), net->forward(x)));
  CHECK(lora_options(*other).bias == LoraBias::lora_only);
  other->last->weight.zero_();
  load_lora(*other, folder.path());  // into the existing adapters
  CHECK(at::equal(other->forward(x), net->forward(x)));

  // The file does not fit adapters with a different rank or a different scale.
  for (const LoraOptions& options :
       {LoraOptions{.r = 3, .alpha = 6}, LoraOptions{.r = 2, .alpha = 3},
        LoraOptions{.r = 2, .alpha = 6, .use_rslora = true}}) {
    const auto different = std::make_shared<UserNet>();
    LoraOptions all = options;
    all.target_modules = {"first", "blocks.0"};
    all.modules_to_save = {"last"};
    all.bias = LoraBias::lora_only;
    add_lora(*different, all);
    const at::Tensor y = different->forward(x);
    try {
      load_lora(*different, folder.path());
      FAIL_CHECK("it was accepted");
    } catch (const DataError& error) {
      CHECK(error.code() == "models.lora-file");
      CHECK_MESSAGE(contains(error.what(), "adapter_config.json, key "), error.what());
    }
    CHECK(at::equal(different->forward(x), y));
  }
  merge_lora(*other);
  CHECK(code_of([&] { load_lora(*other, folder.path()); }) == "models.lora-merged");
  write_file_atomically(folder.path() / "adapter_config.json",
                        R"({"peft_type": "LORA", "target_modules": ["first"], "use_dora": true})");
  const auto third = new_net();
  CHECK(code_of([&] { load_lora(*third, folder.path()); }) == "models.lora-file");
  CHECK_FALSE(has_lora(*third));
}

TEST_CASE("lora: a file that does not fit leaves the module as it was") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  TensorDict tensors = load_safetensors(folder.path() / "adapter_model.safetensors");
  tensors["base_model.model.other.lora_A.weight"] = torch::zeros({2, 4});
  save_safetensors(folder.path() / "adapter_model.safetensors", tensors);
  std::filesystem::remove(folder.path() / "model_manifest.json");
  const auto other = new_net();
  other->last->weight.set_requires_grad(false);
  const at::Tensor x = torch::randn({5, 4}), y = other->forward(x).detach();
  const std::vector<at::Tensor> before = other->parameters();  // as an optimizer has them
  CHECK(code_of([&] { load_lora(*other, folder.path()); }) == "models.lora-file");
  CHECK_FALSE(has_lora(*other));
  const std::vector<at::Tensor> after = other->parameters();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i].is_same(before[i]));
  CHECK(other->first->weight.is_same(before[0]));
  CHECK(at::equal(other->forward(x), y));
  for (const auto& item : other->named_parameters()) {
    CAPTURE(item.key());
    CHECK(item.value().requires_grad() == (item.key() != "last.weight"));
  }
}

TEST_CASE("lora: each key of PEFT's file is checked, and the rank before it takes memory") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  const auto file = folder.path() / "adapter_config.json";
  const auto whole = nlohmann::json::parse(read_file(file));
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"r", 4'000'000'000'000'000},
           {"r", "2"},
           {"r", 2.5},
           {"lora_alpha", "6"},
           {"target_modules", nlohmann::json::array()},
           {"target_modules", {"first", 1}},
           {"target_modules", 3},
           {"bias", "some"},
           {"task_type", 1},
           {"peft_type", "IA3"},
           {"rank_pattern", {{"first", 3}}}}) {
    CAPTURE(key);
    CAPTURE(value);
    auto config = whole;
    config[key] = value;
    write_file_atomically(file, config.dump());
    const auto other = new_net();
    try {
      load_lora(*other, folder.path());
      FAIL_CHECK("it was accepted");
    } catch (const DataError& error) {
      CHECK(error.code() == "models.lora-file");
      CHECK(error.text().what == file.string() + ", key " + key);
    }
    CHECK_FALSE(has_lora(*other));
  }
  for (const char* text : {"[]", "{", "{\"r\": 2, \"r\": 2}"}) {
    write_file_atomically(file, text);
    CHECK(code_of([&] { load_lora(*new_net(), folder.path()); }) == "models.lora-file");
  }
  std::filesystem::remove(file);
  CHECK(code_of([&] { load_lora(*new_net(), folder.path()); }) == "io.not-found");
}

TEST_CASE("lora: an initialization that changes the model's own weights is refused") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  const auto file = folder.path() / "adapter_config.json";
  auto config = nlohmann::json::parse(read_file(file));
  const auto code_for = [&](const nlohmann::json& initialization) {
    config["init_lora_weights"] = initialization;
    write_file_atomically(file, config.dump());
    return code_of([&] { load_lora(*new_net(), folder.path()); });
  };
  for (const char* const changing :
       {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"})
    CHECK(code_for(changing) == "models.lora-file");
  for (const nlohmann::json& plain :
       std::vector<nlohmann::json>{true, false, nullptr, "gaussian", "orthogonal", "eva"})
    CHECK(code_for(plain) == "none");
}

}  // namespace models_lora_files_test
