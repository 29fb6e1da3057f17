// File: hasten/models/gpt2.h
// GPT-2 (Radford et al. 2019), a decoder, with heads that predict the next token and classify
// texts.
//
//   auto model = std::make_shared<GPT2LMHeadModel>(GPT2Config{.n_layer = 6});
//   model->initialize();
//   ModelOutput out =
//       model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", ids}});
//
// input_ids, attention_mask and position_ids are [batch, length] int64; attention_mask is non-zero
// for a token that counts. Without position_ids the positions are 0, 1, ... as in transformers,
// even with padding at the left. token_type_ids are not read, because GPT-2's tokenizer gives none;
// transformers adds their word embeddings. Structure, names and arithmetic match transformers'
// classes of the same names. Throws DataError "models.id-out-of-range",
// "models.label-out-of-range", "models.sequence-too-long", "models.no-padding-token",
// "data.labels", "data.missing-tensor". Thread rule: one thread at a time.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/decoder_models.h"
#include "hasten/models/detail/gpt2_config.h"

namespace hasten {

class GPT2Block;
class GPT2LayerNorm;
class GPT2Model;

class HASTEN_API GPT2PreTrainedModel : public PreTrainedModel {
 public:
  using Config = GPT2Config;
  using Decoder = GPT2Model;
  static constexpr const char *kDecoderName = "transformer", *kWordsName = "wte";

  std::string config_json() const override;
  std::int64_t max_length() const override { return config_.n_positions; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  const GPT2Config& config() const { return config_; }
  std::int64_t hidden_size() const { return config_.n_embd; }
  CacheShape cache_shape() const { return {config_.n_layer, config_.n_embd}; }

 protected:
  // `architecture` is the class that config.json names.
  GPT2PreTrainedModel(GPT2Config config, const char* architecture);

  GPT2Config config_;
};

extern template class DecoderModel<GPT2PreTrainedModel>;
extern template class DecoderForCausalLM<GPT2PreTrainedModel>;
extern template class DecoderForSequenceClassification<GPT2PreTrainedModel>;

class HASTEN_API GPT2Model : public DecoderModel<GPT2PreTrainedModel> {
 public:
  explicit GPT2Model(GPT2Config config);
  at::Tensor hidden_states(const at::Tensor& ids, const DecoderPass& pass) const override;

 private:
  at::Tensor embed(const at::Tensor& ids, const DecoderPass& pass) const;

  std::shared_ptr<EmbeddingTable> positions_;
  std::vector<std::shared_ptr<GPT2Block>> layers_;
  std::shared_ptr<GPT2LayerNorm> norm_;
};

class HASTEN_API GPT2LMHeadModel : public DecoderForCausalLM<GPT2PreTrainedModel> {
 public:
  explicit GPT2LMHeadModel(GPT2Config config);
};

class HASTEN_API GPT2ForSequenceClassification
    : public DecoderForSequenceClassification<GPT2PreTrainedModel> {
 public:
  explicit GPT2ForSequenceClassification(GPT2Config config);
};

}  // namespace hasten
