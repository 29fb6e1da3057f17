// File: hasten/models/detail/gpt2_config.h
// The configuration of a GPT-2 in Hugging Face's config.json: sizes, rates, special tokens, labels.
//
//   GPT2Config config = GPT2Config::from_file("model/config.json");
//   GPT2Config tiny{.vocab_size = 1000, .n_positions = 64, .n_embd = 32, .n_layer = 2, .n_head = 2};
//
// Names and defaults match transformers' GPT2Config (5.23). Keys of a file that hasten does not
// know are kept and written back. Thread rule: a value. Throws DataError "models.config-*" and
// "models.unknown-type" for a file that is not a GPT-2's configuration or contradicts itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/names.h"

namespace hasten {

struct HASTEN_API GPT2Config {
  std::int64_t vocab_size = 50257;
  std::int64_t n_positions = 1024;
  std::int64_t n_embd = 768;
  std::int64_t n_layer = 12;
  std::int64_t n_head = 12;
  std::optional<std::int64_t> n_inner = {};  // if unset, 4 * n_embd
  // gelu | gelu_new | gelu_pytorch_tanh | relu | silu | swish | tanh
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;  // dropout of the values that a layer adds
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;               // the standard deviation of new weights
  bool scale_attn_weights = true;                // scales scores by 1 / sqrt(head size)
  bool scale_attn_by_inverse_layer_idx = false;  // also scales them by 1 / (index of the layer + 1)
  std::optional<std::int64_t> bos_token_id = 50256;
  std::vector<std::int64_t> eos_token_ids = {50256};  // the key eos_token_id: a number or a list
  std::optional<std::int64_t> pad_token_id = {};
  bool tie_word_embeddings = true;
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label = {};  // if empty, LABEL_0, LABEL_1, ...
  std::string problem_type = {};                      // if empty, it depends on the labels
  // How this process computes attention. It is not a key of the file.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::vector<std::string> architectures = {};  // class names of transformers
  std::string other_keys = "{}";                // a JSON object of the file's other keys

  static GPT2Config from_file(const std::filesystem::path& path);
  // `where` names the source in messages.
  static GPT2Config from_json(const std::string& text, const std::string& where);
  // A built-in configuration, "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl"; unset for any other
  // name.
  static std::optional<GPT2Config> by_name(const std::string& name);

  std::int64_t inner_size() const { return n_inner.value_or(4 * n_embd); }
  // The text of config.json as transformers writes it: sorted keys, two spaces of indentation, a
  // newline at the end.
  std::string to_json() const;
  // Throws DataError "models.config-value" if a value is out of range or contradicts another one.
  void check(const std::string& where) const;
};

}  // namespace hasten
