// File: hasten/models/training_traits.h
// The facts about a module that prepare() and the Trainer use. They do not depend on its class: a
// module that derives from TrainingTraits overrides the functions that concern it, and any other
// module gets the defaults.
//
//   struct Tagger : torch::nn::Module, TrainingTraits {
//     std::int64_t max_length() const override { return 128; }
//   };
//
// PreTrainedModel derives from it. The defaults and the functions below the class throw nothing of
// their own; prepare() and the Trainer throw what an override throws.
// Thread rule: the same as for the module.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/packed_rows.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct Recomputation;  // hasten/models/recomputation.h

class HASTEN_API TrainingTraits {
 public:
  virtual ~TrainingTraits() = default;

  // The largest sequence length that forward() accepts; 0 means no limit.
  virtual std::int64_t max_length() const { return 0; }
  // The floating-point operations of a training step on this batch (forward and backward pass), or
  // nullopt if unknown.
  virtual std::optional<double> floating_point_ops(const TensorDict&) const { return std::nullopt; }
  // Return the number of tokens of the batch, and the number of tokens that are not padding. Return
  // nullopt if the batch has no tokens.
  virtual std::optional<std::int64_t> token_count(const TensorDict&) const { return std::nullopt; }
  virtual std::optional<std::int64_t> real_token_count(const TensorDict& batch) const {
    return token_count(batch);
  }
  // The number of tokens of each row of the batch, or 0 if rows have no tokens. The outputs of a
  // batch that was padded for the device are cut to this length.
  virtual std::int64_t row_length(const TensorDict&) const { return 0; }
  // Returns the names of the parameters that weight decay leaves out, or nullopt if
  // undecayed_parameters_of() should find them.
  virtual std::optional<std::set<std::string>> undecayed_parameters() const { return std::nullopt; }

  // Writes the files of the model into a folder of the Trainer: output_dir or a checkpoint. The
  // weights must be where load_weights (hasten/formats/weights.h) finds them. Returns false if the
  // module writes no files of its own; the Trainer then writes its weights.
  virtual bool save_files(const std::filesystem::path&) const { return false; }
  // The bytes of the files that save_files writes in addition to the weights.
  virtual std::uintmax_t other_file_bytes() const { return 0; }
  // Reads the weights that save_files wrote. Returns the names that the folder lacks; these tensors
  // keep their values. Returns nullopt if the Trainer should read the weights instead.
  virtual std::optional<std::vector<std::string>> load_files(const std::filesystem::path&) {
    return std::nullopt;
  }

  // Sets the NEFTune noise (Jain et al. 2023) that forward() adds to the token embeddings while the
  // module trains: uniform in [-alpha, alpha] / sqrt(length * hidden size). 0 means no noise.
  // Returns false if the module does not support it.
  virtual bool set_embedding_noise(double /*alpha*/) { return false; }

  // True if the loss compares each label with the logits of the token before it, as in language
  // models that predict the next token. The first label of a row then does not count.
  virtual bool shifts_labels() const { return false; }

  // Sets what the module recomputes in the backward pass; nullopt means nothing. Returns the paths
  // of the modules that it recomputes, or nullopt if the caller should switch the layers below the
  // module that derive from RecomputableLayer instead.
  virtual std::optional<std::vector<std::string>> set_recomputation(
      const std::optional<Recomputation>&) {
    return std::nullopt;
  }

  // Lets forward() leave out the logits and the padding while the module trains and the batch has
  // labels, because the loss does not need them. The loss stays the same up to rounding. Returns
  // false if the module does not support it.
  virtual bool set_loss_only(bool /*loss_only*/) { return false; }

  // True if forward() accepts batches of one row that consists of several texts, with their offsets
  // in kPackedRows (DataCollatorWithFlattening with return_flash_attn_kwargs).
  virtual bool supports_packed_batches() const { return false; }
  // True if an output of forward() has an entry for each token. If it is false, each output has an
  // entry for each row, also in a batch of packed rows, so that evaluations with padding_free leave
  // out padding although something reads the outputs.
  virtual bool has_outputs_of_tokens() const { return true; }

  // Sets whether parameters may get sparse gradients, which the optimizer must accept.
  virtual void set_sparse_gradients(bool) {}
  // Returns the parameters of this module itself (not of the modules below it) that currently have
  // sparse gradients.
  virtual std::vector<at::Tensor> sparse_parameters() const { return {}; }
};

// Returns the traits of the module, or null if it does not derive from TrainingTraits.
HASTEN_API const TrainingTraits* traits_of(const torch::nn::Module& module);
HASTEN_API TrainingTraits* traits_of(torch::nn::Module& module);

// Returns the names of the parameters that weight decay leaves out. As in the Hugging Face Trainer,
// these are the parameters of a LayerNorm, and the parameters with a name that contains "bias",
// "layernorm" or "rmsnorm" or has a part that is "norm" or ends in "_norm". C++ programs often
// write their own norms, so a class whose name ends in "LayerNorm" or "RMSNorm" is a norm here,
// too.
HASTEN_API std::set<std::string> undecayed_parameters_of(const torch::nn::Module& module);
// True if the name alone excludes the parameter from weight decay.
HASTEN_API bool is_undecayed_name(const std::string& parameter);

// Count the tokens of a batch of text. tokens_in counts the entries of input_ids, real_tokens_in
// the ones in attention_mask (or all tokens if there is no mask), and row_length_in the entries of
// a row of input_ids. Without the tensors they return nullopt, nullopt and 0.
HASTEN_API std::optional<std::int64_t> tokens_in(const TensorDict& batch);
HASTEN_API std::optional<std::int64_t> real_tokens_in(const TensorDict& batch);
HASTEN_API std::int64_t row_length_in(const TensorDict& batch);

}  // namespace hasten
