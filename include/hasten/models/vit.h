// File: hasten/models/vit.h
// The vision transformer (Dosovitskiy et al. 2020) that classifies images.
//
//   auto model = std::make_shared<ViTForImageClassification>(
//       ViTConfig{.hidden_size = 64, .num_hidden_layers = 4, .num_attention_heads = 4,
//                 .intermediate_size = 128, .image_size = {32, 32}, .patch_size = {4, 4},
//                 .num_labels = 10});
//   model->initialize();
//   ModelOutput out = model->forward({{"pixel_values", at::zeros({8, 3, 32, 32})}});
//
// Structure and arithmetic match transformers' class of the same name, and parameter names match
// its files. Throws DataError "models.config-value" and what ImageClassifier throws. Thread rule:
// one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/image_classifier.h"

namespace hasten {

// Names and defaults match transformers' ViTConfig (5.23). Keys of a file that hasten does not know
// are kept and written back.
struct HASTEN_API ViTConfig {
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double initializer_range = 0.02;  // the standard deviation of new weights
  double layer_norm_eps = 1e-12;
  // Height and width of the images and of the patches. Patches must divide the images without
  // remainder. The file has one number if height and width are equal.
  std::array<std::int64_t, 2> image_size = {224, 224}, patch_size = {16, 16};
  std::int64_t num_channels = 3;
  bool qkv_bias = true;
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label = {};  // LABEL_0, LABEL_1, ... if empty
  std::string problem_type = {};                      // follows from the labels if empty
  // How this process computes attention. The file has no such key.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::vector<std::string> architectures = {};  // class names of transformers
  std::string other_keys = "{}";                // a JSON object of the file's other keys

  // `where` names the source in messages.
  static ViTConfig from_json(const std::string& text, const std::string& where);
  // The text of config.json.
  std::string to_json() const;
  // Throws DataError "models.config-value" if a value is out of range or contradicts another one.
  void check(const std::string& where) const;
};

class Projection;

class HASTEN_API ViTForImageClassification : public ImageClassifier {
 public:
  explicit ViTForImageClassification(ViTConfig config);

  ModelOutput forward(const TensorDict& batch) override;
  std::string config_json() const override { return config_.to_json(); }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  ImageShape image_shape() const override {
    return {config_.num_channels, config_.image_size[0], config_.image_size[1]};
  }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const ViTConfig& config() const { return config_; }

 protected:
  std::string base_prefix() const override { return "vit"; }

 private:
  class Encoder;
  ViTConfig config_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Projection> classifier_;
};

}  // namespace hasten
