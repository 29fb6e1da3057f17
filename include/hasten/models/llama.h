// File: hasten/models/llama.h
// Llama (Touvron et al. 2023), a decoder, with heads that predict the next token and classify texts.
//
//   auto model = std::make_shared<LlamaForCausalLM>(*LlamaConfig::by_name("llama-3.2-1b"));
//   model->initialize();
//   ModelOutput out =
//       model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", ids}});
//
// Norms divide by the root mean square (Zhang and Sennrich 2019), positions rotate queries and keys
// (Su et al. 2021), several heads of queries may share a head of keys and values (Ainslie et al.
// 2023), and the inner layer is gated (Shazeer 2020). Inputs are those of GPT-2 (hasten/models/
// gpt2.h). Structure, names and arithmetic are those of transformers' classes of the same names.
// Throws DataError "models.id-out-of-range", "models.label-out-of-range",
// "models.no-padding-token", "data.labels", "data.missing-tensor". Thread rule: one thread at a time.
#pragma once

#include "hasten/base/export.h"
#include "hasten/models/causal_model.h"
#include "hasten/models/llama_config.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

class HASTEN_API LlamaPreTrainedModel : public PreTrainedModel {
 public:
  std::string config_json() const override;
  std::int64_t max_length() const override { return config_.max_position_embeddings; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const LlamaConfig& config() const { return config_; }

 protected:
  // `architecture` is the class that config.json names.
  LlamaPreTrainedModel(LlamaConfig config, const char* architecture);

  LlamaConfig config_;
};

class EmbeddingTable;
class LlamaDecoderLayer;
class LlamaRMSNorm;
class Projection;
struct DecoderPass;

// The decoder.
class HASTEN_API LlamaModel : public LlamaPreTrainedModel {
 public:
  explicit LlamaModel(LlamaConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  // Returns the hidden states [rows, tokens, hidden_size] of the next tokens of a cache.
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
  at::Tensor embed(const at::Tensor& ids) const;
  at::Tensor run_layers(at::Tensor x, const DecoderPass& pass) const;

  std::shared_ptr<EmbeddingTable> words_;
  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers_;
  std::shared_ptr<LlamaRMSNorm> norm_;
  bool sparse_gradients_ = false;
  double noise_ = 0;  // the alpha of NEFTune
};

// Predicts the next token; outputs and labels are those of GPT2LMHeadModel.
class HASTEN_API LlamaForCausalLM : public LlamaPreTrainedModel, public CausalModel {
 public:
  explicit LlamaForCausalLM(LlamaConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  CacheShape cache_shape() const override;
  std::int64_t max_length() const override { return config_.max_position_embeddings; }
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
  std::string base_prefix() const override { return "model"; }

 private:
  const at::Tensor& head() const;  // [vocab_size, hidden_size]

  std::shared_ptr<LlamaModel> model_;
  std::shared_ptr<Projection> own_head_;  // null if the head is the table of word embeddings
  bool loss_only_ = false;
};

// Classifies texts by the last token that is not padding; outputs and labels are those of
// GPT2ForSequenceClassification.
class HASTEN_API LlamaForSequenceClassification : public LlamaPreTrainedModel {
 public:
  explicit LlamaForSequenceClassification(LlamaConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  void set_sparse_gradients(bool sparse) override;
  bool set_embedding_noise(double alpha) override;

 protected:
  std::string base_prefix() const override { return "model"; }

 private:
  std::shared_ptr<LlamaModel> model_;
  std::shared_ptr<Projection> score_;
};

}  // namespace hasten
