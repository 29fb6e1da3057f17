// File: hasten/models/llama.h
// Llama (Touvron et al. 2023), a decoder, with heads that predict the next token and classify
// texts.
//
//   auto model = std::make_shared<LlamaForCausalLM>(*LlamaConfig::by_name("llama-3.2-1b"));
//   model->initialize();
//   ModelOutput out =
//       model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", ids}});
//
// Norms divide by the root mean square (Zhang and Sennrich 2019), positions rotate queries and keys
// (Su et al. 2021), several heads of queries may share a head of keys and values (Ainslie et al.
// 2023), and the inner layer is gated (Shazeer 2020). Inputs are the same as for GPT-2
// (hasten/models/gpt2.h). Structure, names and arithmetic match transformers' classes of the same
// names. Throws DataError "models.id-out-of-range", "models.label-out-of-range",
// "models.no-padding-token", "data.labels", "data.missing-tensor". Thread rule: one thread at a
// time.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/decoder_models.h"
#include "hasten/models/detail/llama_config.h"

namespace hasten {

class LlamaDecoderLayer;
class LlamaModel;
class LlamaRMSNorm;
class RotaryPositions;

class HASTEN_API LlamaPreTrainedModel : public PreTrainedModel {
 public:
  using Config = LlamaConfig;
  using Decoder = LlamaModel;
  static constexpr const char *kDecoderName = "model", *kWordsName = "embed_tokens";

  std::string config_json() const override;
  std::int64_t max_length() const override { return config_.max_position_embeddings; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const LlamaConfig& config() const { return config_; }
  std::int64_t hidden_size() const { return config_.hidden_size; }
  CacheShape cache_shape() const;

 protected:
  // `architecture` is the class that config.json names.
  LlamaPreTrainedModel(LlamaConfig config, const char* architecture);

  LlamaConfig config_;
};

extern template class DecoderModel<LlamaPreTrainedModel>;
extern template class DecoderForCausalLM<LlamaPreTrainedModel>;
extern template class DecoderForSequenceClassification<LlamaPreTrainedModel>;

class HASTEN_API LlamaModel : public DecoderModel<LlamaPreTrainedModel> {
 public:
  explicit LlamaModel(LlamaConfig config);
  at::Tensor hidden_states(const at::Tensor& ids, const DecoderPass& pass) const override;

 private:
  at::Tensor embed(const at::Tensor& ids) const;

  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers_;
  std::shared_ptr<LlamaRMSNorm> norm_;
  std::shared_ptr<const RotaryPositions> rotary_;
};

class HASTEN_API LlamaForCausalLM : public DecoderForCausalLM<LlamaPreTrainedModel> {
 public:
  explicit LlamaForCausalLM(LlamaConfig config);
};

class HASTEN_API LlamaForSequenceClassification
    : public DecoderForSequenceClassification<LlamaPreTrainedModel> {
 public:
  explicit LlamaForSequenceClassification(LlamaConfig config);
};

}  // namespace hasten
