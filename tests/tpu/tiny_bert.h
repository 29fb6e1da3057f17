// A BERT that device tpu compiles in seconds, with the same weights each time. Its attention uses
// plain operators, because the fused operator compiles only for TPUs.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "hasten/models/bert.h"

namespace hasten {

inline std::shared_ptr<BertForSequenceClassification> tiny_bert(std::int64_t num_labels,
                                                                double dropout = 0) {
  torch::manual_seed(2);
  const auto net = std::make_shared<BertForSequenceClassification>(
      BertConfig{.vocab_size = 100,
                 .hidden_size = 32,
                 .num_hidden_layers = 2,
                 .num_attention_heads = 2,
                 .intermediate_size = 64,
                 .hidden_dropout_prob = dropout,
                 .attention_probs_dropout_prob = dropout,
                 .max_position_embeddings = 16,
                 .num_labels = num_labels,
                 .attn_implementation = AttentionImplementation::eager});
  net->initialize();
  return net;
}

}  // namespace hasten
