// File: hasten/models/pretrained_model.h
// What every reference model is: a LibTorch module that takes a batch of named tensors, gives loss
// and logits, and is read from and written to Hugging Face's folders.
//
//   auto model = load_model("path/to/folder", {.task = Task::text_classification, .num_labels =
//   10}).model; ModelOutput out = model->forward({{"input_ids", ids}, {"attention_mask", mask},
//   {"labels", labels}}); out.loss.backward(); model->save_pretrained("out");       // config.json,
//   model.safetensors
//
// Parameter names are those of transformers' state_dict. Weights are float on the CPU until moved.
// Thread rule: as LibTorch's modules; one thread at a time.
#pragma once

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hasten/config/attention.h"
#include "hasten/formats/tensor_dict.h"

namespace hasten {

// Undefined where the model or the call does not give it.
struct ModelOutput {
  at::Tensor loss;    // scalar, mean over the labels that count
  at::Tensor logits;  // [batch, labels], or [batch, length, labels or vocabulary]
  // [batch, length, hidden]; undefined where a text classifier has left padding out
  at::Tensor last_hidden_state;
  at::Tensor pooler_output;  // [batch, hidden]
};

// A parameter that has another shape in a file.
struct Mismatch {
  std::string name;
  std::vector<std::int64_t> in_file, in_model;
};

// How weights of a file met the parameters of a model.
struct LoadReport {
  std::vector<std::string> missing;     // parameters that the file does not have: newly initialized
  std::vector<std::string> unexpected;  // tensors of the file without a parameter
  std::vector<Mismatch> mismatched;     // newly initialized, where that was asked for
};

class PreTrainedModel : public torch::nn::Module {
 public:
  // The models of this library take input_ids [batch, length] int64 and, where present,
  // attention_mask, token_type_ids, position_ids (same shape) and labels; other names are ignored.
  // A model of your own takes what its data has.
  virtual ModelOutput forward(const TensorDict& batch) = 0;

  // config.json's text.
  virtual std::string config_json() const = 0;
  // The largest sequence length that forward takes, and the number of ids.
  virtual std::int64_t max_length() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t num_labels() const = 0;
  // config.json's key: "regression", "single_label_classification", "multi_label_classification",
  // or empty where the labels decide.
  virtual std::string problem_type() const { return ""; }
  // Further names of a tensor, each with the name under which it is saved. A name need not be that
  // of a parameter: files may have it all the same. A tensor that is registered twice is known to
  // be one without this; it is saved under the name that was registered first.
  virtual std::map<std::string, std::string> tied_parameters() const { return {}; }
  // Whether embedding tables may give sparse gradients (see ops::embedding_sum); an optimizer must
  // take them.
  virtual void set_sparse_gradients(bool) {}
  // The parameters of this module itself (not of those below it that are PreTrainedModels) whose
  // gradients are sparse now.
  virtual std::vector<at::Tensor> sparse_parameters() const { return {}; }

  // Floating-point operations of a training step on this batch (forward and backward pass), as the
  // Hugging Face Trainer counts total_flos: six for each token and each parameter outside of the
  // embedding tables. Nothing where that is not known, as for a batch without input_ids; a model of
  // another kind may override this.
  virtual std::optional<double> floating_point_ops(const TensorDict& batch) const;

  // Fills new weights: normal(0, initializer_range) for matrices and tables, 0 for biases, 1 for
  // the norms' scales. Only the parameters named, or all. Uses LibTorch's default generator.
  virtual void initialize(const std::vector<std::string>* names = nullptr) = 0;

  // Copies the tensors into the parameters and buffers by name; a missing base_prefix() ("bert.")
  // is added or dropped. Parameters that the file lacks are initialized; buffers keep their values.
  // Errors come before anything is copied: "models.shape" for a tensor of another shape, unless
  // `ignore_mismatched_sizes` has it initialized, as in transformers; "models.dtype" for a type
  // that is not the parameter's, save that floating-point types are converted.
  LoadReport load_weights(const TensorDict& weights, const std::string& where,
                          bool ignore_mismatched_sizes = false);
  // Parameters and buffers to be saved, each tensor once.
  TensorDict state_dict() const;
  // Writes config.json and model.safetensors (in shards with an index beyond max_shard_size bytes)
  // into the folder.
  void save_pretrained(const std::filesystem::path& folder,
                       std::int64_t max_shard_size = 50'000'000'000) const;

 protected:
  // The name under which the base model's parameters stand in the full model ("bert"); empty in the
  // base model itself.
  virtual std::string base_prefix() const { return ""; }

 private:
  mutable std::optional<double> flos_per_token_;  // counted once
};

enum class Task { base, text_classification, token_classification, masked_lm };

struct ModelOptions {
  Task task = Task::text_classification;
  std::int64_t num_labels = 0;      // 0: as config.json says
  std::vector<std::string> labels;  // names of the labels, for id2label; empty: as config.json says
  std::string problem_type;         // empty: as config.json says
  // hidden_dropout_prob, attention_probs_dropout_prob, classifier_dropout; unset: as config.json
  // says.
  std::optional<double> hidden_dropout, attention_dropout, classifier_dropout;
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::filesystem::path weights;  // a safetensors file instead of the folder's own
  // New weights where the file's have another shape, such as a head for other labels.
  bool ignore_mismatched_sizes = false;
};

struct LoadedModel {
  std::shared_ptr<PreTrainedModel> model;
  LoadReport report;
  bool random = false;  // no weights were read: a configuration alone was given
};

// `what` is a folder with config.json and model.safetensors (or shards with an index), a
// config.json (random weights), or the name of a built-in configuration (bert-base, bert-large;
// random weights). Throws DataError "models.*", "weights.*", "safetensors.*", IoError.
LoadedModel load_model(const std::string& what, const ModelOptions& options);
// The number of ids of that model, from its configuration alone.
std::int64_t vocabulary_of(const std::string& what);

// The labels as the model's configuration describes them.
struct ConfiguredLabels {
  std::int64_t count = 0;
  std::vector<std::string> names;  // by id, LABEL_<id> where none is given; empty: it does not say
  std::string problem_type;        // empty: it does not say
};
ConfiguredLabels configured_labels(const std::string& what);

}  // namespace hasten
