// The models for images: their configurations, names and checks. tests/oracle/images_test.cpp
// compares their numbers with transformers.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <set>

#include "hasten/base/files.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "unit/data/error_of.h"

namespace models_image_models_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

ViTConfig tiny_vit() {
  return {.hidden_size = 8,
          .num_hidden_layers = 1,
          .num_attention_heads = 2,
          .intermediate_size = 16,
          .image_size = {8, 12},
          .patch_size = {4, 4},
          .num_channels = 1,
          .num_labels = 3};
}

ResNetConfig tiny_resnet() {
  return {
      .num_channels = 1, .embedding_size = 4, .hidden_sizes = {8}, .depths = {1}, .num_labels = 3};
}

std::string config_error(const char* text) {
  const std::string type = Json::parse(text).at("model_type").get<std::string>();
  return error_of([&] {
    if (type == "vit") {
      (void)ViTConfig::from_json(text, "config.json");
    } else {
      (void)ResNetConfig::from_json(text, "config.json");
    }
  });
}

}  // namespace

TEST_CASE("image models: a folder is saved and loaded, with a head for other labels") {
  const TemporaryDirectory scratch;
  ViTForImageClassification model(tiny_vit());
  model.initialize();
  model.save_pretrained(scratch.path());
  const Json config = Json::parse(model.config_json());
  CHECK(config.at("image_size") == Json::array({8, 12}));
  CHECK(config.at("patch_size") == 4);
  CHECK(config.at("architectures") == Json::array({"ViTForImageClassification"}));
  const std::string folder = scratch.path().string();
  CHECK(configured_labels(folder).count == 3);

  const LoadedModel same = load_model(folder, {.task = Task::image_classification});
  CHECK(same.report.missing.empty());
  CHECK(same.report.unexpected.empty());
  const TensorDict batch = {{"pixel_values", at::randn({2, 1, 8, 12})},
                            {"labels", at::tensor({0, 2})}};
  model.eval();
  same.model->eval();
  CHECK(at::equal(model.forward(batch).logits, same.model->forward(batch).logits));
  CHECK(at::equal(model.forward(batch).loss, same.model->forward(batch).loss));

  const LoadedModel other = load_model(
      folder,
      {.task = Task::image_classification, .num_labels = 5, .ignore_mismatched_sizes = true});
  CHECK(other.report.mismatched.size() == 2);
  CHECK(other.model->forward({{"pixel_values", batch.at("pixel_values")}}).logits.size(-1) == 5);

  CHECK(contains(error_of([&] { (void)load_model(folder, {}); }),
                 "models.task | the task text-classification"));
  CHECK(contains(error_of([&] { (void)vocab_size_of(folder); }), "models.task"));
  CHECK(contains(error_of([&] {
                   (void)load_model(
                       folder, {.task = Task::image_classification, .classifier_dropout = 0.1});
                 }),
                 "models.config-value | the option classifier_dropout"));
}

TEST_CASE("image models: weight decay leaves out biases and layer norms, but not batch norms") {
  const std::set<std::string> vit = undecayed_parameters_of(ViTForImageClassification(tiny_vit()));
  CHECK(vit.count("vit.encoder.layer.0.layernorm_before.weight") == 1);
  CHECK(vit.count("vit.embeddings.cls_token") == 0);
  const std::set<std::string> resnet =
      undecayed_parameters_of(ResNetForImageClassification(tiny_resnet()));
  CHECK(resnet.count("resnet.embedder.embedder.normalization.weight") == 0);
  CHECK(resnet.count("resnet.embedder.embedder.normalization.bias") == 1);
}

TEST_CASE("image models: the statistics of batch norms are saved with the weights") {
  const TemporaryDirectory scratch;
  ResNetForImageClassification model(tiny_resnet());
  model.initialize();
  model.train();
  (void)model.forward({{"pixel_values", at::randn({4, 1, 32, 16})}});
  model.save_pretrained(scratch.path());
  const LoadedModel loaded =
      load_model(scratch.path().string(), {.task = Task::image_classification});
  const TensorDict state = loaded.model->state_dict();
  CHECK(
      state.at("resnet.embedder.embedder.normalization.num_batches_tracked").item<std::int64_t>() ==
      1);
  CHECK(at::equal(state.at("resnet.embedder.embedder.normalization.running_mean"),
                  model.state_dict().at("resnet.embedder.embedder.normalization.running_mean")));
  CHECK(contains(error_of([&] {
                   (void)load_model(scratch.path().string(),
                                    {.task = Task::image_classification, .hidden_dropout = 0.1});
                 }),
                 "got 0.1 for a model of type resnet"));
}

TEST_CASE("image models: images of another size and wrong labels are refused") {
  ViTForImageClassification vit(tiny_vit());
  vit.initialize();
  CHECK(contains(error_of([&] {
                   (void)vit.forward({{"pixel_values", at::zeros({2, 1, 8, 8})}});
                 }),
                 "got shape [2, 1, 8, 8], expected [batch, 1, 8, 12]"));
  CHECK(contains(error_of([&] { (void)vit.forward({}); }), "data.missing-tensor"));
  CHECK(contains(error_of([&] {
                   (void)vit.forward(
                       {{"pixel_values", at::zeros({1, 1, 8, 12})}, {"labels", at::tensor({3})}});
                 }),
                 "models.label-out-of-range"));
  ResNetForImageClassification resnet(tiny_resnet());
  resnet.initialize();
  CHECK(contains(error_of([&] {
                   (void)resnet.forward({{"pixel_values", at::zeros({2, 3, 8, 8})}});
                 }),
                 "expected [batch, 1, height, width]"));
  CHECK(vit.floating_point_ops({{"pixel_values", at::zeros({1, 1, 8, 12})}}).has_value());
  CHECK(!vit.token_count({{"pixel_values", at::zeros({1, 1, 8, 12})}}).has_value());
}

TEST_CASE("image models: configurations are checked") {
  CHECK(config_error(R"({"model_type": "vit"})") == "none");
  CHECK(config_error(R"({"model_type": "resnet"})") == "none");
  for (const char* text : {R"({"model_type": "vit", "image_size": 225})",
                           R"({"model_type": "vit", "image_size": [1, 2, 3]})",
                           R"({"model_type": "vit", "patch_size": 0})",
                           R"({"model_type": "vit", "num_attention_heads": 5})",
                           R"({"model_type": "vit", "hidden_act": "xielu"})",
                           R"({"model_type": "vit", "qkv_bias": 1})",
                           R"({"model_type": "vit", "hidden_dropout_prob": 1})",
                           R"({"model_type": "resnet", "layer_type": "wide"})",
                           R"({"model_type": "resnet", "depths": [1]})",
                           R"({"model_type": "resnet", "depths": [1, 1, 1, 0]})",
                           R"({"model_type": "resnet", "hidden_sizes": []})",
                           R"({"model_type": "resnet", "hidden_sizes": [2, 2, 2, 2]})",
                           R"({"model_type": "resnet", "hidden_sizes": "big"})"}) {
    CAPTURE(text);
    CHECK(contains(config_error(text), "models.config-value | config.json, key "));
  }
}

}  // namespace models_image_models_test
