#include "hasten/models/vit.h"

#include <torch/torch.h>

#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "models/layers.h"

namespace hasten {

namespace {

// One layer, with the names of transformers' files: attention.attention, attention.output,
// intermediate, output. The norms come before the sublayers.
class ViTLayer : public torch::nn::Module, public RecomputableLayer {
 public:
  explicit ViTLayer(const ViTConfig& config)
      : heads_(config.num_attention_heads),
        activation_(config.hidden_act),
        dropout_(config.hidden_dropout_prob),
        attention_dropout_(config.attention_probs_dropout_prob),
        attention_(config.attn_implementation) {
    const std::int64_t n = config.hidden_size, inner = config.intermediate_size;
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<Norm>(n, config.layer_norm_eps));
    };
    const auto attention = add_submodule(*this, "attention"),
               self = add_submodule(*attention, "attention"),
               mixed = add_submodule(*attention, "output");
    const auto input = [&](const char* name) {
      return self->register_module(name, std::make_shared<Projection>(n, n, config.qkv_bias));
    };
    query_ = input("query");
    key_ = input("key");
    value_ = input("value");
    attention_output_ = mixed->register_module("dense", std::make_shared<Projection>(n, n));
    up_ = add_submodule(*this, "intermediate")
              ->register_module("dense", std::make_shared<Projection>(n, inner));
    down_ = add_submodule(*this, "output")
                ->register_module("dense", std::make_shared<Projection>(inner, n));
    norm_before_ = norm("layernorm_before");
    norm_after_ = norm("layernorm_after");
  }

  ops::NormedStream forward(const ops::NormedStream& in, const Norm* next) const {
    if (!is_recomputed()) return compute(in, next, is_training());
    const auto recompute = [this, training = is_training()](const at::Tensor& x) {
      return compute({.stream = x, .normed = {}}, nullptr, training).stream;
    };
    return {.stream = run_recomputable(recompute, in.stream), .normed = {}};
  }

  // Returns the first norm if the layer before should compute it. A layer that is recomputed keeps
  // only the stream, and computes the norm again.
  const Norm* norm_before(const at::Tensor& stream) const {
    return !is_recomputed() && ops::fuses_pre_norm(stream) ? norm_before_.get() : nullptr;
  }

 private:
  ops::NormedStream compute(const ops::NormedStream& stream, const Norm* next,
                            bool training) const {
    const auto attend =
        attention_ == AttentionImplementation::eager ? ops::eager_attention : ops::attention;
    const at::Tensor in = normalize_stream(*norm_before_, stream);
    const at::Tensor context =
        attend((*query_)(in), (*key_)(in), (*value_)(in), ops::KeyMask(at::Tensor()), heads_,
               attention_dropout_, training);
    ops::NormedStream mixed = add_and_normalize(*attention_output_, *norm_after_, context,
                                                stream.stream, dropout_, training);
    const at::Tensor wide = activate(activation_, *up_, mixed.normed);
    mixed.normed.reset();  // Only a backward pass needs it now.
    return add_for_next(*down_, next, wide, mixed.stream, dropout_, training);
  }

  std::int64_t heads_;
  std::string activation_;
  double dropout_, attention_dropout_;
  AttentionImplementation attention_;
  std::shared_ptr<Projection> query_, key_, value_, attention_output_, up_, down_;
  std::shared_ptr<Norm> norm_before_, norm_after_;
};

}  // namespace

// Embeds a token for the class and the patches of the image, adds positions, and runs the layers.
class ViTForImageClassification::Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const ViTConfig& config) : dropout_(config.hidden_dropout_prob) {
    const std::int64_t n = config.hidden_size;
    const std::int64_t patches = (config.image_size[0] / config.patch_size[0]) *
                                 (config.image_size[1] / config.patch_size[1]);
    const std::vector<std::int64_t> patch(config.patch_size.begin(), config.patch_size.end());
    const auto embeddings = add_submodule(*this, "embeddings");
    class_token_ = embeddings->register_parameter("cls_token", at::empty({1, 1, n}));
    positions_ =
        embeddings->register_parameter("position_embeddings", at::empty({1, patches + 1, n}));
    projection_ =
        add_submodule(*embeddings, "patch_embeddings")
            ->register_module(
                "projection",
                std::make_shared<Convolution>(
                    config.num_channels, n,
                    Convolution::Options{.kernel = patch, .stride = patch, .has_bias = true}));
    const auto layers = add_submodule(*add_submodule(*this, "encoder"), "layer");
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(
          layers->register_module(std::to_string(i), std::make_shared<ViTLayer>(config)));
    norm_ = register_module("layernorm", std::make_shared<Norm>(n, config.layer_norm_eps));
  }

  // Returns the last hidden state of the class tokens, [batch, hidden].
  at::Tensor forward(const at::Tensor& pixels) {
    const at::Tensor patches = (*projection_)(pixels).flatten(2).transpose(1, 2);
    const at::Tensor tokens =
        at::cat({class_token_.expand({pixels.size(0), -1, -1}), patches}, 1) + positions_;
    const at::Tensor hidden =
        run_pre_norm_layers(layers_, ops::dropout(tokens, dropout_, is_training()),
                            [](const ViTLayer& layer, const ops::NormedStream& in,
                               const Norm* next) { return layer.forward(in, next); });
    return (*norm_)(hidden.select(1, 0));
  }

 private:
  double dropout_;
  at::Tensor class_token_, positions_;
  std::shared_ptr<Convolution> projection_;
  std::vector<std::shared_ptr<ViTLayer>> layers_;
  std::shared_ptr<Norm> norm_;
};

ViTForImageClassification::ViTForImageClassification(ViTConfig config)
    : config_(std::move(config)) {
  config_.check("ViTConfig");
  config_.architectures = {"ViTForImageClassification"};
  encoder_ = register_module("vit", std::make_shared<Encoder>(config_));
  classifier_ = register_module(
      "classifier", std::make_shared<Projection>(config_.hidden_size, config_.num_labels));
}

ModelOutput ViTForImageClassification::forward(const TensorDict& batch) {
  return classifier_output((*classifier_)(encoder_->forward(pixels_of(batch))), batch);
}

void ViTForImageClassification::initialize(const std::vector<std::string>* names) {
  initialize_parameters(*this, names, [&](const std::string& name, const at::Tensor& weight) {
    if (weight.dim() > 1) {
      weight.normal_(0, config_.initializer_range);
    } else {
      const bool is_scale =
          name.find("layernorm") != std::string::npos && ends_with(name, ".weight");
      weight.fill_(is_scale ? 1 : 0);
    }
  });
}

}  // namespace hasten
