#include "hasten/models/llama.h"

#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "models/decoder_definitions.h"
#include "models/rotary_positions.h"

namespace hasten {

// Divides by the root mean square, and has no bias. Weight decay leaves out its parameter, because
// the name of its class ends with RMSNorm.
class LlamaRMSNorm : public torch::nn::Module {
 public:
  LlamaRMSNorm(std::int64_t n, double epsilon)
      : weight(register_parameter("weight", at::empty({n}))), epsilon(epsilon) {}
  at::Tensor operator()(const at::Tensor& x) const { return ops::rms_norm(x, weight, epsilon); }

  at::Tensor weight;
  const at::Tensor bias;  // undefined
  double epsilon;
};

// One layer, with the names of transformers: input_layernorm, self_attn, post_attention_layernorm,
// mlp.
class LlamaDecoderLayer : public torch::nn::Module, public RecomputableLayer {
 public:
  LlamaDecoderLayer(const LlamaConfig& config, std::int64_t index)
      : index_(index),
        heads_(config.num_attention_heads, config.key_value_heads()),
        activation_(config.hidden_act),
        attention_dropout_(config.attention_dropout),
        attention_(config.attn_implementation) {
    const std::int64_t n = config.hidden_size, inner = config.intermediate_size,
                       queries = config.num_attention_heads * config.head_size(),
                       keys = config.key_value_heads() * config.head_size();
    const auto projection = [](const std::shared_ptr<torch::nn::Module>& parent, const char* name,
                               std::int64_t in, std::int64_t out, bool bias) {
      return parent->register_module(name, std::make_shared<Projection>(in, out, bias));
    };
    const auto attention = add_submodule(*this, "self_attn"), mlp = add_submodule(*this, "mlp");
    query_ = projection(attention, "q_proj", n, queries, config.attention_bias);
    key_ = projection(attention, "k_proj", n, keys, config.attention_bias);
    value_ = projection(attention, "v_proj", n, keys, config.attention_bias);
    attention_output_ = projection(attention, "o_proj", queries, n, config.attention_bias);
    gate_ = projection(mlp, "gate_proj", n, inner, config.mlp_bias);
    up_ = projection(mlp, "up_proj", n, inner, config.mlp_bias);
    down_ = projection(mlp, "down_proj", inner, n, config.mlp_bias);
    norm_1_ =
        register_module("input_layernorm", std::make_shared<LlamaRMSNorm>(n, config.rms_norm_eps));
    norm_2_ = register_module("post_attention_layernorm",
                              std::make_shared<LlamaRMSNorm>(n, config.rms_norm_eps));
  }

  ops::NormedStream forward(const ops::NormedStream& in, const Rotation& rotation,
                            const DecoderPass& pass, const LlamaRMSNorm* next) const {
    // A second run would write to the cache again.
    if (pass.cache != nullptr || !is_recomputed()) return compute(in, rotation, pass, next);
    // The mask's tensor is an argument only so that it counts as a tensor that the layer keeps.
    const auto recompute = [this, pass](const at::Tensor& x, const Rotation& same,
                                        const at::Tensor&) {
      return compute({.stream = x, .normed = {}}, same, pass, nullptr).stream;
    };
    return {.stream = run_recomputable(recompute, in.stream, rotation, pass.mask.additive()),
            .normed = {}};
  }

  // Returns the first norm if the layer before should compute it. A layer that is recomputed keeps
  // only the stream, and computes the norm again.
  const LlamaRMSNorm* norm_before(const at::Tensor& stream) const {
    return !is_recomputed() && ops::fuses_pre_norm(stream) ? norm_1_.get() : nullptr;
  }

 private:
  ops::NormedStream compute(const ops::NormedStream& in, const Rotation& rotation,
                            const DecoderPass& pass, const LlamaRMSNorm* next) const {
    const at::Tensor context = attend(normalize_stream(*norm_1_, in), rotation, pass);
    const ops::NormedStream mixed =
        add_and_normalize(*attention_output_, *norm_2_, context, in.stream, 0, /*training=*/false);
    const at::Tensor inner = apply_gate((*gate_)(mixed.normed), (*up_)(mixed.normed));
    return add_for_next(*down_, next, inner, mixed.stream, 0, /*training=*/false);
  }

  at::Tensor apply_gate(const at::Tensor& gate, const at::Tensor& up) const {
    if (activation_ == "silu" || activation_ == "swish") return ops::silu_multiply(gate, up);
    return activate(activation_, gate) * up;
  }

  at::Tensor attend(const at::Tensor& x, const Rotation& rotation, const DecoderPass& pass) const {
    const auto [keys, values] =
        pass.append_to_cache(index_, rotation.apply((*key_)(x)), (*value_)(x));
    const auto attend =
        attention_ == AttentionImplementation::eager ? ops::eager_attention : ops::attention;
    return attend(rotation.apply((*query_)(x)), keys, values, pass.mask, heads_, attention_dropout_,
                  is_training());
  }

  std::int64_t index_;
  ops::AttentionHeads heads_;
  std::string activation_;
  double attention_dropout_;
  AttentionImplementation attention_;
  std::shared_ptr<Projection> query_, key_, value_, attention_output_, gate_, up_, down_;
  std::shared_ptr<LlamaRMSNorm> norm_1_, norm_2_;
};

LlamaPreTrainedModel::LlamaPreTrainedModel(LlamaConfig config, const char* architecture)
    : config_(std::move(config)) {
  config_.check("LlamaConfig");
  config_.architectures = {architecture};
}

std::string LlamaPreTrainedModel::config_json() const { return config_.to_json(); }

void LlamaPreTrainedModel::initialize(const std::vector<std::string>* names) {
  initialize_parameters(*this, names, [&](const std::string& name, const at::Tensor& weight) {
    if (weight.dim() > 1) {
      weight.normal_(0, config_.initializer_range);
    } else {
      weight.fill_(ends_with(name, "norm.weight") ? 1 : 0);
    }
    if (ends_with(name, "embed_tokens.weight") && config_.pad_token_id.value_or(-1) >= 0)
      weight[*config_.pad_token_id].zero_();
  });
}

CacheShape LlamaPreTrainedModel::cache_shape() const {
  return {config_.num_hidden_layers, config_.key_value_heads() * config_.head_size()};
}

template class DecoderModel<LlamaPreTrainedModel>;
template class DecoderForCausalLM<LlamaPreTrainedModel>;
template class DecoderForSequenceClassification<LlamaPreTrainedModel>;

LlamaModel::LlamaModel(LlamaConfig config)
    : DecoderModel(std::move(config), "LlamaModel"),
      rotary_(std::make_shared<const RotaryPositions>(config_.rope_parameters, config_.head_size(),
                                                      config_.max_position_embeddings)) {
  const auto list = add_submodule(*this, "layers");
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i)
    layers_.push_back(
        list->register_module(std::to_string(i), std::make_shared<LlamaDecoderLayer>(config_, i)));
  norm_ = register_module(
      "norm", std::make_shared<LlamaRMSNorm>(config_.hidden_size, config_.rms_norm_eps));
}

at::Tensor LlamaModel::embed(const at::Tensor& ids) const {
  return add_noise(ops::embedding_sum(words_->weight, {}, {}, ids, {}, {},
                                      config_.pad_token_id.value_or(-1), sparse_gradients_));
}

at::Tensor LlamaModel::hidden_states(const at::Tensor& ids, const DecoderPass& pass) const {
  at::Tensor x = embed(ids);
  const at::Tensor positions =
      pass.positions.defined()
          ? pass.positions.to(x.device())
          : at::arange(x.size(1), at::TensorOptions(x.device()).dtype(at::kLong)).unsqueeze(0);
  const Rotation rotation = rotary_->at(positions);
  return (*norm_)(run_pre_norm_layers(
      layers_, std::move(x),
      [&](const LlamaDecoderLayer& layer, const ops::NormedStream& in, const LlamaRMSNorm* next) {
        return layer.forward(in, rotation, pass, next);
      }));
}

LlamaForCausalLM::LlamaForCausalLM(LlamaConfig config)
    : DecoderForCausalLM(std::move(config), "LlamaForCausalLM") {}

LlamaForSequenceClassification::LlamaForSequenceClassification(LlamaConfig config)
    : DecoderForSequenceClassification(std::move(config), "LlamaForSequenceClassification") {}

}  // namespace hasten
