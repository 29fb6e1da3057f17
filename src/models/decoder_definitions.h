// File: models/decoder_definitions.h (internal)
// The member functions of hasten/models/detail/decoder_models.h, for the sources that instantiate
// them.
//
//   template class DecoderModel<GPT2PreTrainedModel>;     // in gpt2.cpp
//
// Throws and thread rule: as the public header says.
#pragma once

#include <utility>

#include "hasten/models/detail/decoder_models.h"
#include "models/decoder.h"

namespace hasten {

template <class Family>
DecoderModel<Family>::DecoderModel(typename Family::Config config, const char* architecture)
    : Family(std::move(config), architecture),
      words_(this->register_module(
          Family::kWordsName,
          std::make_shared<EmbeddingTable>(this->config_.vocab_size, this->hidden_size()))) {}

template <class Family>
ModelOutput DecoderModel<Family>::forward(const TensorDict& batch) {
  ModelOutput out;
  out.last_hidden_state =
      hidden_states(as_int64(tensor_at(batch, "input_ids")), make_decoder_pass(batch));
  return out;
}

template <class Family>
at::Tensor DecoderModel<Family>::forward(const at::Tensor& ids, KeyValueCache& cache) {
  return hidden_states(ids, make_decoder_pass(cache, ids.size(1)));
}

template <class Family>
std::vector<at::Tensor> DecoderModel<Family>::sparse_parameters() const {
  if (!sparse_gradients_) return {};
  return {words_->weight};
}

template <class Family>
bool DecoderModel<Family>::set_embedding_noise(double alpha) {
  noise_ = alpha;
  return true;
}

template <class Family>
at::Tensor DecoderModel<Family>::add_noise(const at::Tensor& embeddings) const {
  return noise_ > 0 && this->is_training() ? with_noise(embeddings, noise_) : embeddings;
}

template <class Family>
const at::Tensor& DecoderModel<Family>::word_embeddings() const {
  return words_->weight;
}

// The size of the noise depends on the length of the rows.
template <class Family>
bool DecoderModel<Family>::can_drop_padding() const {
  return noise_ == 0 && words_->weight.device().is_cpu() &&
         this->config_.attn_implementation != AttentionImplementation::eager;
}

template <class Family>
DecoderForCausalLM<Family>::DecoderForCausalLM(typename Family::Config config,
                                               const char* architecture)
    : Family(std::move(config), architecture),
      decoder_(this->register_module(Family::kDecoderName,
                                     std::make_shared<typename Family::Decoder>(this->config_))) {
  if (this->config_.tie_word_embeddings) return;
  lm_head_ = this->register_module(
      "lm_head",
      std::make_shared<Projection>(this->hidden_size(), this->config_.vocab_size, false));
}

template <class Family>
const at::Tensor& DecoderForCausalLM<Family>::head() const {
  return lm_head_ ? lm_head_->weight : decoder_->word_embeddings();
}

template <class Family>
at::Tensor DecoderForCausalLM<Family>::compute_loss(const TensorDict& batch) const {
  const LossInputs rows = make_loss_inputs(batch, {decoder_->vocab_size(), decoder_->max_length()},
                                           decoder_->can_drop_padding());
  return causal_lm_loss(decoder_->hidden_states(rows.ids, rows.pass), head(), rows.labels);
}

template <class Family>
ModelOutput DecoderForCausalLM<Family>::forward(const TensorDict& batch) {
  if (loss_only_ && this->is_training() && has_classes(batch)) {
    ModelOutput out;
    out.loss = compute_loss(batch);
    return out;
  }
  ModelOutput out = decoder_->forward(batch);
  add_causal_lm_outputs(out, head(), find_or_undefined(batch, "labels"));
  return out;
}

template <class Family>
at::Tensor DecoderForCausalLM<Family>::next_logits(const at::Tensor& ids, KeyValueCache& cache) {
  const at::Tensor hidden = decoder_->forward(ids, cache);
  return ops::linear(hidden.select(1, hidden.size(1) - 1), head(), {});
}

template <class Family>
void DecoderForCausalLM<Family>::set_sparse_gradients(bool sparse) {
  // A tied table also gets the gradient of the output matrix, which is dense.
  decoder_->set_sparse_gradients(sparse && lm_head_ != nullptr);
}

template <class Family>
bool DecoderForCausalLM<Family>::set_embedding_noise(double alpha) {
  return decoder_->set_embedding_noise(alpha);
}

template <class Family>
std::map<std::string, std::string> DecoderForCausalLM<Family>::tied_parameters() const {
  if (lm_head_) return {};
  return {{"lm_head.weight", str(Family::kDecoderName, '.', Family::kWordsName, ".weight")}};
}

template <class Family>
DecoderForSequenceClassification<Family>::DecoderForSequenceClassification(
    typename Family::Config config, const char* architecture)
    : Family(std::move(config), architecture),
      decoder_(this->register_module(Family::kDecoderName,
                                     std::make_shared<typename Family::Decoder>(this->config_))),
      score_(this->register_module(
          "score",
          std::make_shared<Projection>(this->hidden_size(), this->config_.num_labels, false))) {}

template <class Family>
ModelOutput DecoderForSequenceClassification<Family>::forward(const TensorDict& batch) {
  ModelOutput out = decoder_->forward(batch);
  out.logits = (*score_)(last_tokens(out.last_hidden_state, tensor_at(batch, "input_ids"),
                                     this->config_.pad_token_id));
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (labels.defined()) out.loss = row_loss(out.logits, labels, this->config_.problem_type);
  return out;
}

template <class Family>
void DecoderForSequenceClassification<Family>::set_sparse_gradients(bool sparse) {
  decoder_->set_sparse_gradients(sparse);
}

template <class Family>
bool DecoderForSequenceClassification<Family>::set_embedding_noise(double alpha) {
  return decoder_->set_embedding_noise(alpha);
}

}  // namespace hasten
