#include "hasten/models/gpt2.h"

#include <cmath>

#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "models/decoder_definitions.h"

namespace hasten {

// Weight decay leaves out its parameters, because the name of its class ends with LayerNorm.
class GPT2LayerNorm : public Norm {
 public:
  using Norm::Norm;
};

// One layer, with the names of transformers: ln_1, attn, ln_2, mlp.
class GPT2Block : public torch::nn::Module, public RecomputableLayer {
 public:
  GPT2Block(const GPT2Config& config, std::int64_t index)
      : index_(index),
        heads_(config.n_head, config.n_head, scale_of_scores(config, index)),
        activation_(config.activation_function),
        dropout_(config.resid_pdrop),
        attention_dropout_(config.attn_pdrop),
        attention_(config.attn_implementation) {
    const std::int64_t n = config.n_embd, inner = config.inner_size();
    norm_1_ =
        register_module("ln_1", std::make_shared<GPT2LayerNorm>(n, config.layer_norm_epsilon));
    const auto attention = add_submodule(*this, "attn");
    query_key_value_ =
        attention->register_module("c_attn", std::make_shared<TransposedProjection>(n, 3 * n));
    attention_output_ =
        attention->register_module("c_proj", std::make_shared<TransposedProjection>(n, n));
    norm_2_ =
        register_module("ln_2", std::make_shared<GPT2LayerNorm>(n, config.layer_norm_epsilon));
    const auto mlp = add_submodule(*this, "mlp");
    up_ = mlp->register_module("c_fc", std::make_shared<TransposedProjection>(n, inner));
    down_ = mlp->register_module("c_proj", std::make_shared<TransposedProjection>(inner, n));
  }

  ops::NormedStream forward(const ops::NormedStream& in, const DecoderPass& pass,
                            const GPT2LayerNorm* next) const {
    // A second run would write to the cache again.
    if (pass.cache != nullptr || !is_recomputed()) return compute(in, pass, next);
    // The mask's tensor is an argument only so that it counts as a tensor that the layer keeps.
    const auto recompute = [this, pass](const at::Tensor& x, const at::Tensor&) {
      return compute({.stream = x, .normed = {}}, pass, nullptr).stream;
    };
    return {.stream = run_recomputable(recompute, in.stream, pass.mask.additive()), .normed = {}};
  }

  // Returns the first norm if the layer before should compute it. A layer that is recomputed keeps
  // only the stream, and computes the norm again.
  const GPT2LayerNorm* norm_before(const at::Tensor& stream) const {
    return !is_recomputed() && ops::fuses_pre_norm(stream) ? norm_1_.get() : nullptr;
  }

 private:
  ops::NormedStream compute(const ops::NormedStream& in, const DecoderPass& pass,
                            const GPT2LayerNorm* next) const {
    const at::Tensor context = attend(normalize_stream(*norm_1_, in), pass);
    ops::NormedStream mixed = add_and_normalize(*attention_output_, *norm_2_, context, in.stream,
                                                dropout_, is_training());
    const at::Tensor inner = activate(activation_, *up_, mixed.normed);
    mixed.normed.reset();  // Only a backward pass needs it now.
    return add_for_next(*down_, next, inner, mixed.stream, dropout_, is_training());
  }

  static double scale_of_scores(const GPT2Config& config, std::int64_t index) {
    double scale = 1;
    const std::int64_t head_size = config.n_embd / config.n_head;
    if (config.scale_attn_weights) scale /= std::sqrt(static_cast<double>(head_size));
    if (config.scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(index + 1);
    return scale;
  }

  at::Tensor attend(const at::Tensor& x, const DecoderPass& pass) const {
    const std::vector<at::Tensor> parts = (*query_key_value_)(x).chunk(3, -1);
    const auto [keys, values] = pass.append_to_cache(index_, parts[1], parts[2]);
    const auto attend =
        attention_ == AttentionImplementation::eager ? ops::eager_attention : ops::attention;
    return attend(parts[0], keys, values, pass.mask, heads_, attention_dropout_, is_training());
  }

  std::int64_t index_;
  ops::AttentionHeads heads_;
  std::string activation_;
  double dropout_, attention_dropout_;
  AttentionImplementation attention_;
  std::shared_ptr<GPT2LayerNorm> norm_1_, norm_2_;
  std::shared_ptr<TransposedProjection> query_key_value_, attention_output_, up_, down_;
};

GPT2PreTrainedModel::GPT2PreTrainedModel(GPT2Config config, const char* architecture)
    : config_(std::move(config)) {
  config_.check("GPT2Config");
  config_.architectures = {architecture};
}

std::string GPT2PreTrainedModel::config_json() const { return config_.to_json(); }

void GPT2PreTrainedModel::initialize(const std::vector<std::string>* names) {
  // Each layer adds to the residual stream twice, so its initial weights are smaller in deep
  // models.
  const double residual =
      config_.initializer_range / std::sqrt(2.0 * static_cast<double>(config_.n_layer));
  initialize_parameters(*this, names, [&](const std::string& name, const at::Tensor& weight) {
    if (weight.dim() > 1) {
      weight.normal_(0, ends_with(name, "c_proj.weight") ? residual : config_.initializer_range);
    } else {
      weight.fill_(ends_with(name, "weight") ? 1 : 0);
    }
  });
}

template class DecoderModel<GPT2PreTrainedModel>;
template class DecoderForCausalLM<GPT2PreTrainedModel>;
template class DecoderForSequenceClassification<GPT2PreTrainedModel>;

GPT2Model::GPT2Model(GPT2Config config)
    : DecoderModel(std::move(config), "GPT2Model"),
      positions_(register_module(
          "wpe", std::make_shared<EmbeddingTable>(config_.n_positions, config_.n_embd))) {
  const auto list = add_submodule(*this, "h");
  for (std::int64_t i = 0; i < config_.n_layer; ++i)
    layers_.push_back(
        list->register_module(std::to_string(i), std::make_shared<GPT2Block>(config_, i)));
  norm_ = register_module(
      "ln_f", std::make_shared<GPT2LayerNorm>(config_.n_embd, config_.layer_norm_epsilon));
}

at::Tensor GPT2Model::embed(const at::Tensor& ids, const DecoderPass& pass) const {
  const at::Tensor sum =
      ops::embedding_sum(words_->weight, positions_->weight, {}, ids,
                         pass.positions.defined() ? pass.positions.to(ids.device()) : at::Tensor(),
                         {}, /*padding_id=*/-1, sparse_gradients_);
  return ops::dropout(add_noise(sum), config_.embd_pdrop, is_training());
}

at::Tensor GPT2Model::hidden_states(const at::Tensor& ids, const DecoderPass& pass) const {
  return (*norm_)(run_pre_norm_layers(
      layers_, embed(ids, pass),
      [&](const GPT2Block& layer, const ops::NormedStream& in, const GPT2LayerNorm* next) {
        return layer.forward(in, pass, next);
      }));
}

GPT2LMHeadModel::GPT2LMHeadModel(GPT2Config config)
    : DecoderForCausalLM(std::move(config), "GPT2LMHeadModel") {}

GPT2ForSequenceClassification::GPT2ForSequenceClassification(GPT2Config config)
    : DecoderForSequenceClassification(std::move(config), "GPT2ForSequenceClassification") {}

}  // namespace hasten
