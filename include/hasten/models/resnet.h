// File: hasten/models/resnet.h
// The residual network (He et al. 2015) that classifies images.
//
//   auto model = std::make_shared<ResNetForImageClassification>(
//       ResNetConfig{.embedding_size = 16, .hidden_sizes = {16, 32}, .depths = {2, 2},
//                    .layer_type = "basic", .num_labels = 10});
//   model->initialize();
//   ModelOutput out = model->forward({{"pixel_values", at::zeros({8, 3, 32, 32})}});
//
// Structure, names and arithmetic match transformers' class of the same name. Images may have any
// height and width. With several processes, each one normalizes its own rows, as with PyTorch's
// DistributedDataParallel. Throws DataError "models.config-value" and what ImageClassifier throws.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/image_classifier.h"

namespace hasten {

// Names and defaults match transformers' ResNetConfig (5.23). Keys of a file that hasten does not
// know are kept and written back.
struct HASTEN_API ResNetConfig {
  std::int64_t num_channels = 3;
  std::int64_t embedding_size = 64;                                 // channels of the first layer
  std::vector<std::int64_t> hidden_sizes = {256, 512, 1024, 2048};  // channels of each stage
  std::vector<std::int64_t> depths = {3, 4, 6, 3};                  // layers of each stage
  std::string layer_type = "bottleneck";                            // or "basic"
  std::string hidden_act = "relu";
  // Whether the first stage halves height and width, as the others do.
  bool downsample_in_first_stage = false;
  // Whether a bottleneck layer halves them in its first convolution instead of the second one.
  bool downsample_in_bottleneck = false;
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label = {};  // LABEL_0, LABEL_1, ... if empty
  std::string problem_type = {};                      // follows from the labels if empty
  std::vector<std::string> architectures = {};        // class names of transformers
  std::string other_keys = "{}";                      // a JSON object of the file's other keys

  // `where` names the source in messages.
  static ResNetConfig from_json(const std::string& text, const std::string& where);
  // The text of config.json.
  std::string to_json() const;
  // Throws DataError "models.config-value" if a value is out of range or contradicts another one.
  void check(const std::string& where) const;
};

class Projection;

class HASTEN_API ResNetForImageClassification : public ImageClassifier {
 public:
  explicit ResNetForImageClassification(ResNetConfig config);

  ModelOutput forward(const TensorDict& batch) override;
  std::string config_json() const override { return config_.to_json(); }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  ImageShape image_shape() const override { return {config_.num_channels, 0, 0}; }
  // Initializes convolutions like He et al. 2015 and the classifier like PyTorch's Linear.
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const ResNetConfig& config() const { return config_; }

 protected:
  std::string base_prefix() const override { return "resnet"; }

 private:
  class Encoder;
  ResNetConfig config_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Projection> classifier_;
};

}  // namespace hasten
