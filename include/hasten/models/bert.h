// File: hasten/models/bert.h
// BERT (Devlin et al. 2019) as an encoder, with heads that classify texts, classify tokens and fill
// masks.
//
//   auto model = std::make_shared<BertForSequenceClassification>(BertConfig{.num_labels = 10});
//   model->initialize();
//   ModelOutput out =
//       model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}});
//
// input_ids, attention_mask, token_type_ids and position_ids are [batch, length] int64;
// attention_mask is non-zero for a token that counts. If a batch has one row that consists of
// several texts, cu_seq_lens_q has the places where they begin (hasten/data/task_collators.h).
// Structure, names and arithmetic match transformers' classes of the same names. Throws DataError
// "models.id-out-of-range", "models.label-out-of-range", "models.sequence-too-long",
// "models.packed-batch", "data.missing-tensor". Thread rule: one thread at a time.
#pragma once

#include "hasten/base/detail/export.h"
#include "hasten/models/detail/bert_config.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

class HASTEN_API BertPreTrainedModel : public PreTrainedModel {
 public:
  std::string config_json() const override;
  std::int64_t max_length() const override { return config_.max_position_embeddings; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t num_labels() const override { return config_.num_labels; }
  std::string problem_type() const override { return config_.problem_type; }
  void initialize(const std::vector<std::string>* names = nullptr) override;
  void set_sparse_gradients(bool sparse) override { sparse_gradients_ = sparse; }
  bool supports_packed_batches() const override { return true; }
  const BertConfig& config() const { return config_; }

 protected:
  // `architecture` is the class that config.json names.
  BertPreTrainedModel(BertConfig config, const char* architecture);

  BertConfig config_;
  bool sparse_gradients_ = false;
};

class BertEmbeddings;
class BertEncoder;
class BertPooler;
struct PackedBatch;
class Projection;
class Norm;

// The encoder, with a pooler (a tanh layer over the first token) if add_pooling_layer is true.
class HASTEN_API BertModel : public BertPreTrainedModel {
 public:
  explicit BertModel(BertConfig config, bool add_pooling_layer = true);
  ModelOutput forward(const TensorDict& batch) override;
  // Does the same for a caller that reads only the pooler's output. On the CPU, masked tokens take
  // no time, unless the first token of a row is masked or attention is eager. If masked tokens are
  // left out, the last hidden state is undefined, and dropout affects different elements than in
  // forward().
  ModelOutput forward_pooled(const TensorDict& batch);
  void set_sparse_gradients(bool sparse) override;
  std::vector<at::Tensor> sparse_parameters() const override;
  bool set_embedding_noise(double alpha) override;
  const at::Tensor& word_embeddings() const;
  // Returns the hidden states and the labels of the tokens of a batch that has a label for each
  // token: hidden [..., hidden_size], labels [...]. Masked tokens are left out, as by
  // forward_pooled.
  std::pair<at::Tensor, at::Tensor> forward_labelled(const TensorDict& batch);

 private:
  std::optional<PackedBatch> packed(const TensorDict& batch) const;

  std::shared_ptr<BertEmbeddings> embeddings_;
  std::shared_ptr<BertEncoder> encoder_;
  std::shared_ptr<BertPooler> pooler_;
};

// A BertModel with dropout and one linear layer on top, the base of the two classifiers.
class HASTEN_API BertClassifier : public BertPreTrainedModel {
 public:
  void set_sparse_gradients(bool sparse) override { bert_->set_sparse_gradients(sparse); }
  bool set_embedding_noise(double alpha) override { return bert_->set_embedding_noise(alpha); }

 protected:
  BertClassifier(BertConfig config, const char* name, bool add_pooling_layer);
  std::string base_prefix() const override { return "bert"; }
  // hidden [..., hidden_size] -> [..., num_labels]
  at::Tensor classify(const at::Tensor& hidden) const;

  std::shared_ptr<BertModel> bert_;
  std::shared_ptr<Projection> classifier_;
};

// Classifies texts. logits [batch, num_labels]. The loss is the mean squared error for one label or
// problem_type regression, cross entropy for int64 labels [batch] (labels of -100 do not count),
// and binary cross entropy for float labels [batch, num_labels].
class HASTEN_API BertForSequenceClassification : public BertClassifier {
 public:
  explicit BertForSequenceClassification(BertConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  bool has_outputs_of_tokens() const override { return false; }
};

// Classifies tokens. logits [batch, length, num_labels]; labels [batch, length], -100 for a token
// that does not count.
class HASTEN_API BertForTokenClassification : public BertClassifier {
 public:
  explicit BertForTokenClassification(BertConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  bool set_loss_only(bool loss_only) override {
    loss_only_ = loss_only;
    return true;
  }

 private:
  bool loss_only_ = false;
};

// Fills masks. In training, set_loss_only(true) leaves out the logits of tokens without a label,
// and computes the other logits for a few tokens at a time (ops::linear_cross_entropy). logits
// [batch, length, vocab_size]; labels [batch, length], -100 for a token that is not to be filled.
// With config.tie_word_embeddings the output matrix is the table of word embeddings, and its
// gradient is never sparse.
class HASTEN_API BertForMaskedLM : public BertPreTrainedModel {
 public:
  explicit BertForMaskedLM(BertConfig config);
  ModelOutput forward(const TensorDict& batch) override;
  void set_sparse_gradients(bool sparse) override;
  bool set_loss_only(bool loss_only) override {
    loss_only_ = loss_only;
    return true;
  }
  bool set_embedding_noise(double alpha) override;
  std::map<std::string, std::string> tied_parameters() const override;

 protected:
  std::string base_prefix() const override { return "bert"; }

 private:
  class Head;
  std::shared_ptr<BertModel> bert_;
  std::shared_ptr<Head> head_;
  bool loss_only_ = false;
};

}  // namespace hasten
