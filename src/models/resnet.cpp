#include "hasten/models/resnet.h"

#include <torch/torch.h>

#include <cmath>

#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "models/layers.h"

namespace hasten {

namespace {

using torch::nn::BatchNorm2dImpl;

// A convolution with a batch normalization and, if it is named, an activation.
class ResNetUnit : public torch::nn::Module {
 public:
  ResNetUnit(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
             std::string activation)
      : activation_(std::move(activation)),
        convolution_(register_module(
            "convolution", std::make_shared<Convolution>(
                               in, out,
                               Convolution::Options{.kernel = {kernel, kernel},
                                                    .stride = {stride, stride},
                                                    .padding = {kernel / 2, kernel / 2}}))),
        normalization_(register_module("normalization", std::make_shared<BatchNorm2dImpl>(out))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = normalization_->forward((*convolution_)(x));
    return activation_.empty() ? y : activate(activation_, y);
  }

 private:
  std::string activation_;
  std::shared_ptr<Convolution> convolution_;
  std::shared_ptr<BatchNorm2dImpl> normalization_;
};

// A residual layer: two or three units and a shortcut around them, which is a unit if shapes
// differ.
class ResNetLayer : public torch::nn::Module, public RecomputableLayer {
 public:
  ResNetLayer(const ResNetConfig& config, std::int64_t in, std::int64_t out, std::int64_t stride)
      : activation_(config.hidden_act) {
    if (in != out || stride != 1)
      shortcut_ = register_module("shortcut", std::make_shared<ResNetUnit>(in, out, 1, stride, ""));
    const auto layer = add_submodule(*this, "layer");
    const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t kernel, std::int64_t step,
                         const std::string& activation) {
      units_.push_back(
          layer->register_module(std::to_string(units_.size()),
                                 std::make_shared<ResNetUnit>(from, to, kernel, step, activation)));
    };
    // As in transformers, the units inside of a layer always use relu.
    if (config.layer_type == "basic") {
      add(in, out, 3, stride, "relu");
      add(out, out, 3, 1, "");
    } else {
      const std::int64_t reduced = out / 4;
      const bool first = config.downsample_in_bottleneck;
      add(in, reduced, 1, first ? stride : 1, "relu");
      add(reduced, reduced, 3, first ? 1 : stride, "relu");
      add(reduced, out, 1, 1, "");
    }
  }

  at::Tensor forward(const at::Tensor& x) {
    return run_recomputable([this](const at::Tensor& input) { return compute(input); }, x);
  }

 private:
  at::Tensor compute(const at::Tensor& x) const {
    at::Tensor y = x;
    for (const auto& unit : units_) y = unit->forward(y);
    return activate(activation_, y + (shortcut_ ? shortcut_->forward(x) : x));
  }

  std::string activation_;
  std::shared_ptr<ResNetUnit> shortcut_;
  std::vector<std::shared_ptr<ResNetUnit>> units_;
};

}  // namespace

class ResNetForImageClassification::Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const ResNetConfig& config) {
    stem_ = add_submodule(*this, "embedder")
                ->register_module("embedder", std::make_shared<ResNetUnit>(config.num_channels,
                                                                           config.embedding_size, 7,
                                                                           2, config.hidden_act));
    const auto stages = add_submodule(*add_submodule(*this, "encoder"), "stages");
    std::int64_t in = config.embedding_size;
    for (std::size_t stage = 0; stage < config.depths.size(); ++stage) {
      const auto layers =
          add_submodule(*add_submodule(*stages, std::to_string(stage).c_str()), "layers");
      const bool halves = stage > 0 || config.downsample_in_first_stage;
      for (std::int64_t layer = 0; layer < config.depths[stage]; ++layer) {
        layers_.push_back(layers->register_module(
            std::to_string(layer),
            std::make_shared<ResNetLayer>(config, in, config.hidden_sizes[stage],
                                          halves && layer == 0 ? 2 : 1)));
        in = config.hidden_sizes[stage];
      }
    }
  }

  // Returns the mean over height and width of the last layer, [batch, channels].
  at::Tensor forward(const at::Tensor& pixels) {
    at::Tensor hidden = at::max_pool2d(stem_->forward(pixels), 3, 2, 1);
    for (const auto& layer : layers_) hidden = layer->forward(hidden);
    return at::adaptive_avg_pool2d(hidden, {1, 1}).flatten(1);
  }

 private:
  std::shared_ptr<ResNetUnit> stem_;
  std::vector<std::shared_ptr<ResNetLayer>> layers_;
};

ResNetForImageClassification::ResNetForImageClassification(ResNetConfig config)
    : config_(std::move(config)) {
  config_.check("ResNetConfig");
  config_.architectures = {"ResNetForImageClassification"};
  encoder_ = register_module("resnet", std::make_shared<Encoder>(config_));
  classifier_ = add_submodule(*this, "classifier")
                    ->register_module("1", std::make_shared<Projection>(config_.hidden_sizes.back(),
                                                                        config_.num_labels));
}

ModelOutput ResNetForImageClassification::forward(const TensorDict& batch) {
  return classifier_output((*classifier_)(encoder_->forward(pixels_of(batch))), batch);
}

void ResNetForImageClassification::initialize(const std::vector<std::string>* names) {
  initialize_parameters(*this, names, [&](const std::string& name, const at::Tensor& weight) {
    if (starts_with(name, "classifier.")) {
      const double bound = 1 / std::sqrt(static_cast<double>(config_.hidden_sizes.back()));
      weight.uniform_(-bound, bound);
    } else if (weight.dim() == 4) {
      const std::int64_t fan_out = weight.size(0) * weight.size(2) * weight.size(3);
      weight.normal_(0, std::sqrt(2.0 / static_cast<double>(fan_out)));
    } else {
      weight.fill_(ends_with(name, ".weight") ? 1 : 0);
    }
  });
}

}  // namespace hasten
