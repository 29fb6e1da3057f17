#include "hasten/models/bert.h"

#include "hasten/base/error.h"
#include "hasten/models/recomputation.h"
#include "models/layers.h"
#include "models/losses.h"
#include "models/packed_batch.h"

namespace hasten {

class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const BertConfig& config)
      : word_(register_module("word_embeddings", std::make_shared<EmbeddingTable>(
                                                     config.vocab_size, config.hidden_size))),
        position_(register_module(
            "position_embeddings",
            std::make_shared<EmbeddingTable>(config.max_position_embeddings, config.hidden_size))),
        type_(register_module(
            "token_type_embeddings",
            std::make_shared<EmbeddingTable>(config.type_vocab_size, config.hidden_size))),
        norm_(register_module("LayerNorm",
                              std::make_shared<Norm>(config.hidden_size, config.layer_norm_eps))),
        dropout_(config.hidden_dropout_prob),
        padding_id_(config.pad_token_id) {}

  at::Tensor forward(const TensorDict& batch) {
    at::Tensor sum = ops::embedding_sum(
        word_->weight, position_->weight, type_->weight, as_int64(tensor_at(batch, "input_ids")),
        as_int64(find_or_undefined(batch, "position_ids")),
        as_int64(find_or_undefined(batch, "token_type_ids")), padding_id_, sparse);
    if (noise > 0 && is_training()) sum = with_noise(sum, noise);
    return ops::dropout((*norm_)(sum), dropout_, is_training());
  }
  const at::Tensor& word() const { return word_->weight; }

  bool sparse = false;
  double noise = 0;  // the alpha of NEFTune

 private:
  std::shared_ptr<EmbeddingTable> word_, position_, type_;
  std::shared_ptr<Norm> norm_;
  double dropout_;
  std::int64_t padding_id_;
};

// One layer, with the names of transformers: attention.self, attention.output,
// intermediate, output.
class BertLayer : public torch::nn::Module, public RecomputableLayer {
 public:
  explicit BertLayer(const BertConfig& config)
      : heads_(config.num_attention_heads),
        activation_(config.hidden_act),
        dropout_(config.hidden_dropout_prob),
        attention_dropout_(config.attention_probs_dropout_prob),
        attention_(config.attn_implementation) {
    const std::int64_t n = config.hidden_size;
    const auto attention = add_submodule(*this, "attention"),
               self = add_submodule(*attention, "self"),
               mixed = add_submodule(*attention, "output");
    const auto intermediate = add_submodule(*this, "intermediate"),
               output = add_submodule(*this, "output");
    query_ = self->register_module("query", std::make_shared<Projection>(n, n));
    key_ = self->register_module("key", std::make_shared<Projection>(n, n));
    value_ = self->register_module("value", std::make_shared<Projection>(n, n));
    attention_output_ = mixed->register_module("dense", std::make_shared<Projection>(n, n));
    attention_norm_ =
        mixed->register_module("LayerNorm", std::make_shared<Norm>(n, config.layer_norm_eps));
    up_ = intermediate->register_module("dense",
                                        std::make_shared<Projection>(n, config.intermediate_size));
    down_ =
        output->register_module("dense", std::make_shared<Projection>(config.intermediate_size, n));
    norm_ = output->register_module("LayerNorm", std::make_shared<Norm>(n, config.layer_norm_eps));
  }

  at::Tensor forward(const at::Tensor& x, const ops::KeyMask& mask) {
    // The mask's tensor is an argument only so that it counts as a tensor that the layer keeps.
    return run_recomputable(
        [this, training = is_training(), mask](const at::Tensor& input, const at::Tensor&) {
          return compute(input, mask, training);
        },
        x, mask.additive());
  }

 private:
  at::Tensor compute(const at::Tensor& x, const ops::KeyMask& mask, bool training) const {
    const auto attend =
        attention_ == AttentionImplementation::eager ? ops::eager_attention : ops::attention;
    const at::Tensor context =
        attend((*query_)(x), (*key_)(x), (*value_)(x), mask, heads_, attention_dropout_, training);
    const at::Tensor mixed = add_norm(*attention_output_, *attention_norm_, context, x, training);
    const at::Tensor inner = activate(activation_, *up_, mixed);
    return add_norm(*down_, *norm_, inner, mixed, training);
  }

  // norm(dropout(dense(x)) + residual)
  at::Tensor add_norm(const Projection& dense, const Norm& norm, const at::Tensor& x,
                      const at::Tensor& residual, bool training) const {
    const bool fuses = ops::fuses_bias(x);
    return ops::dropout_add_norm(fuses ? dense.product(x) : dense(x),
                                 fuses ? dense.bias : at::Tensor(), residual, norm.weight,
                                 norm.bias, norm.epsilon, dropout_, training);
  }

  std::int64_t heads_;
  std::string activation_;
  double dropout_, attention_dropout_;
  AttentionImplementation attention_;
  std::shared_ptr<Projection> query_, key_, value_, attention_output_, up_, down_;
  std::shared_ptr<Norm> attention_norm_, norm_;
};

class BertEncoder : public torch::nn::Module {
 public:
  explicit BertEncoder(const BertConfig& config) {
    const auto list = add_submodule(*this, "layer");
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers_.push_back(
          list->register_module(std::to_string(i), std::make_shared<BertLayer>(config)));
    }
  }
  at::Tensor forward(at::Tensor x, const ops::KeyMask& mask) {
    for (const auto& layer : layers_) x = layer->forward(x, mask);
    return x;
  }

 private:
  std::vector<std::shared_ptr<BertLayer>> layers_;
};

class BertPooler : public torch::nn::Module {
 public:
  explicit BertPooler(const BertConfig& config)
      : dense_(register_module(
            "dense", std::make_shared<Projection>(config.hidden_size, config.hidden_size))) {}
  // first_tokens [batch, hidden_size]
  at::Tensor forward(const at::Tensor& first_tokens) { return at::tanh((*dense_)(first_tokens)); }

 private:
  std::shared_ptr<Projection> dense_;
};

BertPreTrainedModel::BertPreTrainedModel(BertConfig config, const char* architecture)
    : config_(std::move(config)) {
  config_.check("BertConfig");
  config_.architectures = {architecture};
}

std::string BertPreTrainedModel::config_json() const { return config_.to_json(); }

void BertPreTrainedModel::initialize(const std::vector<std::string>* names) {
  initialize_parameters(*this, names, [&](const std::string& name, const at::Tensor& weight) {
    if (weight.dim() > 1) {
      weight.normal_(0, config_.initializer_range);
    } else {
      weight.fill_(ends_with(name, "LayerNorm.weight") ? 1 : 0);
    }
    if (ends_with(name, "word_embeddings.weight") && config_.pad_token_id >= 0)
      weight[config_.pad_token_id].zero_();
  });
}

BertModel::BertModel(BertConfig config, bool add_pooling_layer)
    : BertPreTrainedModel(std::move(config), "BertModel"),
      embeddings_(register_module("embeddings", std::make_shared<BertEmbeddings>(config_))),
      encoder_(register_module("encoder", std::make_shared<BertEncoder>(config_))) {
  if (add_pooling_layer) pooler_ = register_module("pooler", std::make_shared<BertPooler>(config_));
}

ModelOutput BertModel::forward(const TensorDict& batch) {
  if (batch.contains(kPackedRows)) {
    const auto packed = PackedBatch::of(batch, {});
    ModelOutput out;
    out.last_hidden_state = encoder_->forward(embeddings_->forward(packed->batch), packed->mask);
    if (pooler_) out.pooler_output = pooler_->forward(packed->first_tokens(out.last_hidden_state));
    return out;
  }
  const ops::KeyMask mask(find_or_undefined(batch, "attention_mask"));
  ModelOutput out;
  out.last_hidden_state = encoder_->forward(embeddings_->forward(batch), mask);
  if (pooler_) out.pooler_output = pooler_->forward(out.last_hidden_state.select(1, 0));
  return out;
}

std::optional<PackedBatch> BertModel::packed(const TensorDict& batch) const {
  const bool packs = config_.attn_implementation != AttentionImplementation::eager &&
                     word_embeddings().device().is_cpu() &&
                     embeddings_->noise == 0;  // its size depends on the padded length
  if (!packs && !batch.contains(kPackedRows)) return std::nullopt;
  return PackedBatch::of(
      batch, {config_.vocab_size, config_.max_position_embeddings, config_.type_vocab_size});
}

ModelOutput BertModel::forward_pooled(const TensorDict& batch) {
  const auto without_padding = pooler_ ? packed(batch) : std::nullopt;
  if (!without_padding) return forward(batch);
  const at::Tensor hidden =
      encoder_->forward(embeddings_->forward(without_padding->batch), without_padding->mask);
  ModelOutput out;
  out.pooler_output = pooler_->forward(without_padding->first_tokens(hidden));
  return out;
}

std::pair<at::Tensor, at::Tensor> BertModel::forward_labelled(const TensorDict& batch) {
  const auto without_padding = packed(batch);
  if (!without_padding) return {forward(batch).last_hidden_state, tensor_at(batch, "labels")};
  return {encoder_->forward(embeddings_->forward(without_padding->batch), without_padding->mask),
          tensor_at(without_padding->batch, "labels")};
}

void BertModel::set_sparse_gradients(bool sparse) { embeddings_->sparse = sparse; }
std::vector<at::Tensor> BertModel::sparse_parameters() const {
  if (!embeddings_->sparse || !embeddings_->word().requires_grad()) return {};
  return {embeddings_->word()};
}
bool BertModel::set_embedding_noise(double alpha) {
  embeddings_->noise = alpha;
  return true;
}
const at::Tensor& BertModel::word_embeddings() const { return embeddings_->word(); }

BertClassifier::BertClassifier(BertConfig config, const char* name, bool add_pooling_layer)
    : BertPreTrainedModel(std::move(config), name),
      bert_(register_module("bert", std::make_shared<BertModel>(config_, add_pooling_layer))),
      classifier_(register_module(
          "classifier", std::make_shared<Projection>(config_.hidden_size, config_.num_labels))) {}

at::Tensor BertClassifier::classify(const at::Tensor& hidden) const {
  const double rate = config_.classifier_dropout.value_or(config_.hidden_dropout_prob);
  return (*classifier_)(ops::dropout(hidden, rate, is_training()));
}

BertForSequenceClassification::BertForSequenceClassification(BertConfig config)
    : BertClassifier(std::move(config), "BertForSequenceClassification",
                     /*add_pooling_layer=*/true) {}

ModelOutput BertForSequenceClassification::forward(const TensorDict& batch) {
  ModelOutput out = bert_->forward_pooled(batch);
  out.logits = classify(out.pooler_output);
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (!labels.defined()) return out;
  out.loss = row_loss(out.logits, labels, config_.problem_type);
  return out;
}

BertForTokenClassification::BertForTokenClassification(BertConfig config)
    : BertClassifier(std::move(config), "BertForTokenClassification",
                     /*add_pooling_layer=*/false) {}

ModelOutput BertForTokenClassification::forward(const TensorDict& batch) {
  if (loss_only_ && is_training() && has_classes(batch)) {
    const auto [hidden, labels] = bert_->forward_labelled(batch);
    ModelOutput loss;
    const LabelledTokens tokens = labelled_tokens(hidden, labels);
    loss.loss = cross_entropy(classify(tokens.hidden).to(at::kFloat), tokens.labels);
    return loss;
  }
  ModelOutput out = bert_->forward(batch);
  out.logits = classify(out.last_hidden_state);
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (labels.defined()) out.loss = cross_entropy(out.logits.to(at::kFloat), labels);
  return out;
}

// transformers' cls.predictions: a transformation, then the output matrix with its own bias.
class BertForMaskedLM::Head : public torch::nn::Module {
 public:
  explicit Head(const BertConfig& config) : activation_(config.hidden_act) {
    const auto predictions = add_submodule(*this, "predictions"),
               transform = add_submodule(*predictions, "transform");
    bias = predictions->register_parameter("bias", at::empty({config.vocab_size}));
    dense_ = transform->register_module(
        "dense", std::make_shared<Projection>(config.hidden_size, config.hidden_size));
    norm_ = transform->register_module(
        "LayerNorm", std::make_shared<Norm>(config.hidden_size, config.layer_norm_eps));
    if (!config.tie_word_embeddings) {
      decoder = predictions->register_module(
          "decoder", std::make_shared<EmbeddingTable>(config.vocab_size, config.hidden_size));
    }
  }
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& words) {
    return ops::linear(transform(hidden), decoder ? decoder->weight : words, bias);
  }
  // Returns the mean loss of the tokens without computing all logits at once.
  at::Tensor loss(const LabelledTokens& tokens, const at::Tensor& words) {
    check_labels(tokens.labels, bias.size(0));
    return ops::linear_cross_entropy(transform(tokens.hidden), decoder ? decoder->weight : words,
                                     bias, tokens.labels, kIgnoredLabel);
  }

  at::Tensor bias;
  std::shared_ptr<EmbeddingTable> decoder;

 private:
  at::Tensor transform(const at::Tensor& hidden) const {
    return (*norm_)(activate(activation_, *dense_, hidden));
  }

  std::string activation_;
  std::shared_ptr<Projection> dense_;
  std::shared_ptr<Norm> norm_;
};

BertForMaskedLM::BertForMaskedLM(BertConfig config)
    : BertPreTrainedModel(std::move(config), "BertForMaskedLM"),
      bert_(register_module("bert",
                            std::make_shared<BertModel>(config_, /*add_pooling_layer=*/false))),
      head_(register_module("cls", std::make_shared<Head>(config_))) {}

ModelOutput BertForMaskedLM::forward(const TensorDict& batch) {
  if (loss_only_ && is_training() && has_classes(batch)) {
    const auto [hidden, labels] = bert_->forward_labelled(batch);
    ModelOutput loss;
    loss.loss = head_->loss(labelled_tokens(hidden, labels), bert_->word_embeddings());
    return loss;
  }
  ModelOutput out = bert_->forward(batch);
  out.logits = head_->forward(out.last_hidden_state, bert_->word_embeddings());
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (labels.defined()) out.loss = cross_entropy(out.logits.to(at::kFloat), labels);
  return out;
}

bool BertForMaskedLM::set_embedding_noise(double alpha) {
  return bert_->set_embedding_noise(alpha);
}

void BertForMaskedLM::set_sparse_gradients(bool sparse) {
  // A tied table also gets the gradient of the output matrix, which is dense.
  bert_->set_sparse_gradients(sparse && head_->decoder != nullptr);
}

std::map<std::string, std::string> BertForMaskedLM::tied_parameters() const {
  std::map<std::string, std::string> tied = {
      {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
  if (!head_->decoder)
    tied["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight";
  return tied;
}

}  // namespace hasten
