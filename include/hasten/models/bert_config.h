// File: hasten/models/bert_config.h
// What Hugging Face's config.json says of a BERT: sizes, rates, labels.
//
//   BertConfig config = BertConfig::from_file("model/config.json");
//   BertConfig tiny{.vocab_size = 1000, .hidden_size = 64, .num_hidden_layers = 2,
//   .num_attention_heads = 2, .intermediate_size = 256};
//
// Names and defaults are transformers' BertConfig's (5.23). Keys of a file that mean nothing here
// are kept and written back. Thread rule: a value. Throws DataError "models.config-*" for a file
// that is not a BERT's configuration or contradicts itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/config/attention.h"

namespace hasten {

struct BertConfig {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::string hidden_act =
      "gelu";  // gelu | gelu_new | gelu_pytorch_tanh | relu | silu | swish | tanh
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  double initializer_range = 0.02;  // standard deviation of new weights
  double layer_norm_eps = 1e-12;
  std::int64_t pad_token_id = 0;             // its embedding gets no gradient; -1: none
  std::optional<double> classifier_dropout;  // hidden_dropout_prob where absent
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label;  // empty: LABEL_0, LABEL_1, ...
  std::string problem_type;  // "" (from the labels) | regression | single_label_classification |
                             // multi_label_classification
  bool tie_word_embeddings = true;
  // Not of the file: how this process computes.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::vector<std::string> architectures;  // class names, as transformers writes them
  std::string other_keys = "{}";           // JSON object: what else the file held

  static BertConfig from_file(const std::filesystem::path& path);
  // `where` names the source in messages.
  static BertConfig from_json(const std::string& text, const std::string& where);
  // A built-in one: "bert-base" or "bert-large" (uncased sizes), or nothing.
  static std::optional<BertConfig> by_name(const std::string& name);

  // The name of a label: id2label's, or LABEL_<id>.
  std::string label_name(std::int64_t id) const;
  // config.json's text: sorted keys, two spaces, a newline at the end, as transformers writes it.
  std::string to_json() const;
  // The sizes agree (heads divide the hidden size, rates in [0, 1), a known activation, ...).
  void check(const std::string& where) const;
};

}  // namespace hasten
