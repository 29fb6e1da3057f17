// File: hasten/models/pretrained_model.h
// The base class of the models: a LibTorch module that takes a batch of named tensors, returns loss
// and logits, and reads and writes Hugging Face model folders.
//
//   LoadedModel loaded = load_model("google-bert/bert-base-uncased", {.num_labels = 10});
//   ModelOutput out =
//       loaded.model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}});
//   out.loss.backward();
//   loaded.model->save_pretrained("out");  // writes config.json and model.safetensors
//
// Parameters have the names of transformers' state_dict. Weights are float, and on the CPU until
// they are moved. Loading throws DataError "models.*", "weights.*" and "safetensors.*", UsageError
// "models.unknown-task", and IoError; saving throws IoError.
// Thread rule: one thread at a time, as with LibTorch's modules.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/models/training_traits.h"
#include "hasten/options/detail/names.h"

namespace hasten {

// The results of a model. A tensor is undefined if the model or the call does not compute it.
struct ModelOutput {
  at::Tensor loss = {};    // a scalar, the mean over the labels that count
  at::Tensor logits = {};  // [batch, labels], or [batch, length, labels or vocabulary]
  // [batch, length, hidden]; undefined if a text classifier has left out the padding.
  at::Tensor last_hidden_state = {};
  at::Tensor pooler_output = {};  // [batch, hidden]
  // Other outputs by name, each with a row for each row of the batch, such as the two logits of
  // question answering. Trainer::predict() returns them, and metrics take them.
  TensorDict others = {};
};

// A parameter that has a different shape in a file.
struct Mismatch {
  std::string name;
  std::vector<std::int64_t> in_file, in_model;  // the two shapes
};

// How the tensors of a file match the parameters of a model.
struct LoadReport {
  std::vector<std::string> missing;     // parameters that the file lacks; they are initialized
  std::vector<std::string> unexpected;  // tensors of the file that match no parameter
  std::vector<Mismatch> mismatched;     // initialized, with ignore_mismatched_sizes
};

class HASTEN_API PreTrainedModel : public torch::nn::Module, public TrainingTraits {
 public:
  // Computes the outputs for a batch. hasten's models for texts take input_ids [batch, length]
  // int64 and, if present, attention_mask, token_type_ids, position_ids (of the same shape) and
  // labels. Its models for images take pixel_values and labels. They ignore other names. A user's
  // own model takes the tensors that its data has.
  virtual ModelOutput forward(const TensorDict& batch) = 0;

  // The text of config.json.
  virtual std::string config_json() const = 0;
  std::int64_t max_length() const override = 0;
  // The number of ids; 0 for a model without ids.
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t num_labels() const = 0;
  // The value in config.json: "regression", "single_label_classification",
  // "multi_label_classification", or empty if the type follows from the labels.
  virtual std::string problem_type() const { return ""; }
  // Additional names of tensors, each with the name under which the tensor is saved. A name need
  // not belong to a parameter, because files may contain it anyway. A tensor that is registered
  // twice does not need an entry; it is saved under the name that was registered first.
  virtual std::map<std::string, std::string> tied_parameters() const { return {}; }

  // Counts operations as the Hugging Face Trainer does for total_flos: six for each token and each
  // parameter outside the embedding tables. Returns nullopt for a batch without input_ids. A model
  // of a different kind may override this.
  std::optional<double> floating_point_ops(const TensorDict& batch) const override;
  // token_count counts the entries of input_ids. real_token_count counts the ones in
  // attention_mask, or all tokens if there is no mask.
  std::optional<std::int64_t> token_count(const TensorDict& batch) const override;
  std::optional<std::int64_t> real_token_count(const TensorDict& batch) const override;
  std::int64_t row_length(const TensorDict& batch) const override;
  // Call save_pretrained and load_weights.
  bool save_files(const std::filesystem::path& folder) const override;
  std::optional<std::vector<std::string>> load_files(const std::filesystem::path& folder) override;

  // Initializes the named parameters, or all: matrices and tables from normal(0,
  // initializer_range), biases with 0, the scales of norms with 1. Uses LibTorch's default
  // generator.
  virtual void initialize(const std::vector<std::string>* names = nullptr) = 0;

  // Copies the tensors into the parameters and buffers by name, and adds or removes base_prefix()
  // ("bert.") if needed. Parameters that the file lacks are initialized; buffers that it lacks keep
  // their values. `where` names the file in messages. Throws DataError before anything is copied:
  // "models.shape" for a tensor with a different shape, unless `ignore_mismatched_sizes` is true,
  // which initializes the parameter instead, as in transformers; "models.dtype" for a different
  // type, except that floating-point types are converted; "models.no-weights" if no tensor belongs
  // to the model.
  LoadReport load_weights(const TensorDict& weights, const std::string& where,
                          bool ignore_mismatched_sizes = false);
  // The parameters and buffers to be saved, each tensor once.
  TensorDict state_dict() const;
  // Writes config.json and model.safetensors into the folder; more than max_shard_size bytes are
  // written in shards with an index.
  void save_pretrained(const std::filesystem::path& folder,
                       std::int64_t max_shard_size = 50'000'000'000) const;

 protected:
  // The name of the base model within this model ("bert"); empty in the base model itself.
  virtual std::string base_prefix() const { return ""; }

 private:
  mutable std::optional<double> flos_per_token_;  // counted at the first call that needs it
};

enum class Task {
  base,
  text_classification,
  token_classification,
  masked_lm,
  causal_lm,
  image_classification
};

struct ModelOptions {
  Task task = Task::text_classification;
  std::int64_t num_labels = 0;           // 0 means as in config.json
  std::vector<std::string> labels = {};  // the names for id2label; as in config.json if empty
  std::string problem_type = {};         // as in config.json if empty
  // If unset, config.json decides: hidden_dropout_prob, attention_probs_dropout_prob and
  // classifier_dropout. For GPT-2, hidden_dropout is resid_pdrop and embd_pdrop, and
  // attention_dropout is attn_pdrop. For Llama, attention_dropout has the same name in config.json.
  // A model without such a dropout rejects the option.
  std::optional<double> hidden_dropout = {}, attention_dropout = {}, classifier_dropout = {};
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  // A safetensors file that replaces the folder's, if not empty.
  std::filesystem::path weights = {};
  // Initializes weights that have a different shape in the file, such as a head for other labels.
  bool ignore_mismatched_sizes = false;
};

struct LoadedModel {
  std::shared_ptr<PreTrainedModel> model;
  LoadReport report;
  bool random = false;  // true if weights are random because only a configuration was given
};

// Loads a model. `what` is a folder with config.json and model.safetensors (or shards with an
// index), the name of such a model in the Hugging Face cache (ORG/NAME or ORG/NAME@REVISION, see
// hasten/machine/model_folder.h), a config.json (random weights), or the name of a built-in
// configuration (random weights): bert-base, bert-large, gpt2, gpt2-medium, gpt2-large, gpt2-xl,
// llama-2-7b, llama-3-8b, llama-3.2-1b or llama-3.2-3b. An existing file or folder takes precedence
// over a name in the cache. Throws DataError "models.*", "weights.*", "safetensors.*", IoError.
HASTEN_API LoadedModel load_model(const std::string& what, const ModelOptions& options);
// Returns the usual task of models of this type: text_classification for BERT, causal_lm for GPT-2
// and Llama, image_classification for the others. Reads only the configuration.
HASTEN_API Task default_task_of(const std::string& what);
// Returns the number of ids of a model for texts. Reads only its configuration.
HASTEN_API std::int64_t vocab_size_of(const std::string& what);

// The labels that the configuration of a model describes.
struct ConfiguredLabels {
  std::int64_t count = 0;
  // By id, LABEL_<id> for an id without a name; empty if not given.
  std::vector<std::string> names = {};
  std::string problem_type = {};  // empty: not given
};
// Returns the labels of a model. Reads only its configuration.
HASTEN_API ConfiguredLabels configured_labels(const std::string& what);

}  // namespace hasten
