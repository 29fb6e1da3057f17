// File: hasten/models/detail/decoder_models.h
// The classes that the decoders share: a decoder, a decoder with a head that predicts the next
// token, and one with a head that classifies texts. GPT-2 and Llama (gpt2.h, llama.h) are such
// decoders.
//
//   GPT2LMHeadModel model(GPT2Config{.n_layer = 6});       // a DecoderForCausalLM<GPT2PreTrainedModel>
//   CacheShape shape = model.cache_shape();                // 6 layers with 768 numbers per token
//   auto tied = model.tied_parameters();                   // lm_head.weight is transformer.wte.weight
//
// `Family` is the base class of the models of one architecture, such as GPT2PreTrainedModel. It
// names the configuration (Config), the decoder (Decoder), the parts of parameter names
// (kDecoderName, kWordsName), and has hidden_size() and cache_shape(). The functions are
// instantiated for the families of this library only. Throws what gpt2.h lists. Thread rule: one
// thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/models/causal_model.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

class EmbeddingTable;
class Projection;
struct DecoderPass;

// The decoder without a head.
template <class Family>
class HASTEN_API DecoderModel : public Family {
 public:
  ModelOutput forward(const TensorDict& batch) override;
  // Returns the hidden states [rows, tokens, hidden size] of the next tokens after those in the
  // cache.
  at::Tensor forward(const at::Tensor& ids, KeyValueCache& cache);
  void set_sparse_gradients(bool sparse) override { sparse_gradients_ = sparse; }
  std::vector<at::Tensor> sparse_parameters() const override;
  bool set_embedding_noise(double alpha) override;
  const at::Tensor& word_embeddings() const;
  bool supports_packed_batches() const override { return true; }
  // Returns the hidden states of a pass, for the heads.
  virtual at::Tensor hidden_states(const at::Tensor& ids, const DecoderPass& pass) const = 0;
  // True if leaving out the padding of a batch changes results only by rounding.
  bool can_drop_padding() const;

 protected:
  // `architecture` is the class that config.json names.
  DecoderModel(typename Family::Config config, const char* architecture);
  // Returns the embeddings of tokens with the noise of NEFTune, if the model trains with it.
  at::Tensor add_noise(const at::Tensor& embeddings) const;

  std::shared_ptr<EmbeddingTable> words_;
  bool sparse_gradients_ = false;

 private:
  double noise_ = 0;  // the alpha of NEFTune
};

// Predicts the next token. logits [batch, length, vocab_size]; labels [batch, length]. The loss
// compares a label with the logits of the token before, so labels may be the ids themselves, with
// -100 for a token that is not to be predicted. With config.tie_word_embeddings the output matrix
// is the table of word embeddings, and its gradient is never sparse.
template <class Family>
class HASTEN_API DecoderForCausalLM : public Family, public CausalModel {
 public:
  ModelOutput forward(const TensorDict& batch) override;
  CacheShape cache_shape() const override { return Family::cache_shape(); }
  std::int64_t max_length() const override { return Family::max_length(); }
  at::Tensor next_logits(const at::Tensor& ids, KeyValueCache& cache) override;
  bool supports_packed_batches() const override { return true; }
  bool set_loss_only(bool loss_only) override {
    loss_only_ = loss_only;
    return true;
  }
  bool shifts_labels() const override { return true; }
  void set_sparse_gradients(bool sparse) override;
  bool set_embedding_noise(double alpha) override;
  std::map<std::string, std::string> tied_parameters() const override;

 protected:
  DecoderForCausalLM(typename Family::Config config, const char* architecture);
  std::string base_prefix() const override { return Family::kDecoderName; }

 private:
  at::Tensor compute_loss(const TensorDict& batch) const;
  const at::Tensor& head() const;  // [vocab_size, hidden size]

  std::shared_ptr<typename Family::Decoder> decoder_;
  std::shared_ptr<Projection> lm_head_;  // null if the head is the table of word embeddings
  bool loss_only_ = false;
};

// Classifies texts by the last token that is not padding. logits [batch, num_labels]; the loss is
// the same as in BertForSequenceClassification. A batch of several rows needs a pad_token_id.
template <class Family>
class HASTEN_API DecoderForSequenceClassification : public Family {
 public:
  ModelOutput forward(const TensorDict& batch) override;
  void set_sparse_gradients(bool sparse) override;
  bool set_embedding_noise(double alpha) override;

 protected:
  DecoderForSequenceClassification(typename Family::Config config, const char* architecture);
  std::string base_prefix() const override { return Family::kDecoderName; }

 private:
  std::shared_ptr<typename Family::Decoder> decoder_;
  std::shared_ptr<Projection> score_;
};

}  // namespace hasten
