// File: hasten/models/gpt2.h
// GPT-2 (Radford et al. 2019), a decoder, with heads that predict the next token and classify texts.
//
//   auto model = std::make_shared<GPT2LMHeadModel>(GPT2Config{.n_layer = 6});
//   model->initialize();
//   ModelOutput out =
//       model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", ids}});
//
// input_ids, attention_mask and position_ids are [batch, length] int64; attention_mask is non-zero
// for a token that counts, and without position_ids the positions are 0, 1, ... as in transformers,
// also with padding at the left. token_type_ids are not read, because GPT-2's tokenizer gives none;
// transformers adds their word embeddings. Structure, names and arithmetic are those of transformers'
// classes of the same names. Throws DataError "models.id-out-of-range",
// "models.label-out-of-range", "models.sequence-too-long", "models.no-padding-token", "data.labels",
// "data.missing-tensor". Thread rule: one thread at a time.
#pragma once

#include "hasten/base/export.h"
#include "hasten/models/causal_model.h"
#include "hasten/models/gpt2_config.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

class HASTEN_API GPT2PreTrainedModel : public PreTrainedModel {
 public:
  std::string config_json() const override;
  std::int64_t max_length() const override { return config_.n_positions; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const GPT2Config& config() const { return config_; }

 protected:
  // `architecture` is the class that config.json names.
  GPT2PreTrainedModel(GPT2Config config, const char* architecture);

  GPT2Config config_;
};

class EmbeddingTable;
class GPT2Block;
class GPT2LayerNorm;
class Projection;
struct DecoderPass;

// The decoder.
class HASTEN_API GPT2Model : public GPT2PreTrainedModel {
 public:
  explicit GPT2Model(GPT2Config config);
  ModelOutput forward(const TensorDict& batch) override;
  // Returns the hidden states [rows, tokens, n_embd] of the next tokens of a cache.
  at::Tensor forward(const at::Tensor& ids, KeyValueCache& cache);
  void set_sparse_gradients(bool sparse) override { sparse_gradients_ = sparse; }
  std::vector<at::Tensor> sparse_parameters() const override;
  bool set_embedding_noise(double alpha) override;
  const at::Tensor& word_embeddings() const;
  bool takes_packed_batches() const override { return true; }
  // Returns the hidden states of a pass, for the heads.
  at::Tensor hidden_states(const at::Tensor& ids, const DecoderPass& pass) const;
  // True if leaving out the padding of a batch changes results by rounding only.
  bool may_leave_out_padding() const;

 private:
  at::Tensor embed(const at::Tensor& ids, const DecoderPass& pass) const;
  at::Tensor run_layers(at::Tensor x, const DecoderPass& pass) const;

  std::shared_ptr<EmbeddingTable> words_, positions_;
  std::vector<std::shared_ptr<GPT2Block>> layers_;
  std::shared_ptr<GPT2LayerNorm> norm_;
  bool sparse_gradients_ = false;
  double noise_ = 0;  // the alpha of NEFTune
};

// Predicts the next token. logits [batch, length, vocab_size]; labels [batch, length], which the
// loss compares with the logits of the token before: labels may be the ids themselves, and -100 for
// a token that is not to be predicted. With config.tie_word_embeddings the output matrix is the table
// of word embeddings, whose gradient is then never sparse.
class HASTEN_API GPT2LMHeadModel : public GPT2PreTrainedModel, public CausalModel {
 public:
  explicit GPT2LMHeadModel(GPT2Config config);
  ModelOutput forward(const TensorDict& batch) override;
  CacheShape cache_shape() const override { return {config_.n_layer, config_.n_embd}; }
  std::int64_t max_length() const override { return config_.n_positions; }
  at::Tensor next_logits(const at::Tensor& ids, KeyValueCache& cache) override;
  bool takes_packed_batches() const override { return true; }
  bool set_loss_only(bool loss_only) override {
    loss_only_ = loss_only;
    return true;
  }
  bool shifts_labels() const override { return true; }
  void set_sparse_gradients(bool sparse) override;
  bool set_embedding_noise(double alpha) override;
  std::map<std::string, std::string> tied_parameters() const override;

 protected:
  std::string base_prefix() const override { return "transformer"; }

 private:
  const at::Tensor& head() const;  // [vocab_size, n_embd]

  std::shared_ptr<GPT2Model> transformer_;
  std::shared_ptr<Projection> own_head_;  // null if the head is the table of word embeddings
  bool loss_only_ = false;
};

// Classifies texts by the last token that is not padding. logits [batch, num_labels]; the loss is
// that of BertForSequenceClassification. A batch of several rows needs a pad_token_id.
class HASTEN_API GPT2ForSequenceClassification : public GPT2PreTrainedModel {
 public:
  explicit GPT2ForSequenceClassification(GPT2Config config);
  ModelOutput forward(const TensorDict& batch) override;
  void set_sparse_gradients(bool sparse) override;
  bool set_embedding_noise(double alpha) override;

 protected:
  std::string base_prefix() const override { return "transformer"; }

 private:
  std::shared_ptr<GPT2Model> transformer_;
  std::shared_ptr<Projection> score_;
};

}  // namespace hasten
