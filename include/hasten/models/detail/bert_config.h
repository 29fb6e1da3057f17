// File: hasten/models/detail/bert_config.h
// The configuration of a BERT in Hugging Face's config.json: sizes, rates, labels.
//
//   BertConfig config = BertConfig::from_file("model/config.json");
//   BertConfig tiny{.vocab_size = 1000,
//                   .hidden_size = 64,
//                   .num_hidden_layers = 2,
//                   .num_attention_heads = 2,
//                   .intermediate_size = 256};
//
// Names and defaults match transformers' BertConfig (5.23). Keys of a file that hasten does not
// know are kept and written back. Thread rule: a value. Throws DataError "models.config-*" and
// "models.unknown-type" for a file that is not a BERT's configuration or contradicts itself.
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

struct HASTEN_API BertConfig {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  // gelu | gelu_new | gelu_pytorch_tanh | relu | silu | swish | tanh
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  double initializer_range = 0.02;  // the standard deviation of new weights
  double layer_norm_eps = 1e-12;
  std::int64_t pad_token_id = 0;  // its embedding gets no gradient; -1 if there is none
  std::optional<double> classifier_dropout = {};  // if unset, hidden_dropout_prob
  std::int64_t num_labels = 2;
  std::map<std::int64_t, std::string> id2label = {};  // if empty, LABEL_0, LABEL_1, ...
  // regression | single_label_classification | multi_label_classification. If empty, it depends on
  // the labels.
  std::string problem_type = {};
  bool tie_word_embeddings = true;
  // How this process computes attention. It is not a key of the file.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;
  std::vector<std::string> architectures = {};  // class names of transformers
  std::string other_keys = "{}";                // a JSON object of the file's other keys

  static BertConfig from_file(const std::filesystem::path& path);
  // `where` names the source in messages.
  static BertConfig from_json(const std::string& text, const std::string& where);
  // A built-in configuration, "bert-base" or "bert-large" (the sizes of the uncased models); unset
  // for any other name.
  static std::optional<BertConfig> by_name(const std::string& name);

  // Returns the name of a label: its name in id2label, or else LABEL_<id>.
  std::string label_name(std::int64_t id) const;
  // The text of config.json as transformers writes it: sorted keys, two spaces of indentation, a
  // newline at the end.
  std::string to_json() const;
  // Throws DataError "models.config-value" if a value is out of range or contradicts another one
  // (the heads must divide the hidden size, rates must be in [0, 1), the activation must be known).
  void check(const std::string& where) const;
};

}  // namespace hasten
