// File: hasten/models/detail/llama_config.h
// The configuration of a Llama in Hugging Face's config.json: sizes, rotary positions, special
// tokens, labels.
//
//   LlamaConfig config = LlamaConfig::from_file("model/config.json");
//   LlamaConfig tiny{.vocab_size = 1000,
//                    .hidden_size = 32,
//                    .intermediate_size = 64,
//                    .num_hidden_layers = 2,
//                    .num_attention_heads = 4,
//                    .num_key_value_heads = 2};
//
// Names and defaults match transformers' LlamaConfig (5.23). Files of earlier versions, with
// rope_theta and rope_scaling, can also be read. Keys of a file that hasten does not know are kept
// and written back. Thread rule: a value. Throws DataError "models.config-*" and
// "models.unknown-type" for a file that is not a Llama's configuration or contradicts itself.
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

// The key rope_parameters: how positions rotate queries and keys (Su et al. 2021).
struct RopeParameters {
  // default | linear (every frequency is divided by factor) | llama3 (low frequencies are divided
  // by factor, high ones are not, and frequencies in between are interpolated)
  std::string rope_type = "default";
  double rope_theta = 10000;
  double factor = 1;  // linear and llama3
  // For llama3: frequencies are interpolated between the wavelengths
  // original_max_position_embeddings / low_freq_factor and original_max_position_embeddings /
  // high_freq_factor.
  double low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 0;  // if 0, max_position_embeddings
};

struct HASTEN_API LlamaConfig {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::optional<std::int64_t> num_key_value_heads = {};  // if unset, num_attention_heads
  std::optional<std::int64_t> head_dim = {};  // if unset, hidden_size / num_attention_heads
  // gelu | gelu_new | gelu_pytorch_tanh | relu | silu | swish | tanh
  std::string hidden_act = "silu";
  std::int64_t max_position_embeddings = 2048;
  double initializer_range = 0.02;  // the standard deviation of new weights
  double rms_norm_eps = 1e-6;
  std::optional<std::int64_t> pad_token_id = {};  // its embedding gets no gradient
  std::optional<std::int64_t> bos_token_id = 1;
  std::vector<std::int64_t> eos_token_ids = {2};  // the key eos_token_id: a number or a list
  bool tie_word_embeddings = false;
  RopeParameters rope_parameters = {};
  bool attention_bias = false;
  double attention_dropout = 0;
  bool mlp_bias = false;
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label = {};  // if empty, LABEL_0, LABEL_1, ...
  std::string problem_type = {};                      // if empty, it depends on the labels
  // How this process computes attention. It is not a key of the file.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::vector<std::string> architectures = {};  // class names of transformers
  std::string other_keys = "{}";                // a JSON object of the file's other keys

  static LlamaConfig from_file(const std::filesystem::path& path);
  // `where` names the source in messages.
  static LlamaConfig from_json(const std::string& text, const std::string& where);
  // A built-in configuration with the sizes of the published model: "llama-2-7b", "llama-3-8b",
  // "llama-3.2-1b" or "llama-3.2-3b"; unset for any other name.
  static std::optional<LlamaConfig> by_name(const std::string& name);

  std::int64_t key_value_heads() const { return num_key_value_heads.value_or(num_attention_heads); }
  std::int64_t head_size() const { return head_dim.value_or(hidden_size / num_attention_heads); }
  // The text of config.json as transformers writes it: sorted keys, two spaces of indentation, a
  // newline at the end.
  std::string to_json() const;
  // Throws DataError "models.config-value" if a value is out of range or contradicts another one.
  void check(const std::string& where) const;
};

}  // namespace hasten
