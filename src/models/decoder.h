// File: models/decoder.h (internal)
// The tokens that a pass of a decoder reads and attends to, and the losses of its heads.
//
//   const DecoderPass pass = make_decoder_pass(batch);  // or make_decoder_pass(cache, tokens)
//   x = layer->forward(x, pass, /*index=*/0);    // attends to pass.append_to_cache(0, k, v)
//   add_causal_lm_outputs(out, head_weight, labels);    // the logits and the loss
//
// Throws what check_labels throws, and DataError "data.labels". Thread rule: values and pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/models/detail/key_value_cache.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/ops/ops.h"
#include "models/layers.h"
#include "models/losses.h"
#include "models/packed_batch.h"

namespace hasten {

struct DecoderPass {
  at::Tensor positions;  // [batch or 1, tokens]; if undefined, 0, 1, ...
  ops::KeyMask mask;     // causal
  KeyValueCache* cache = nullptr;

  // Returns the keys and values to attend to. With a cache they include those of earlier tokens.
  std::pair<at::Tensor, at::Tensor> append_to_cache(std::int64_t layer, const at::Tensor& keys,
                                                    const at::Tensor& values) const {
    return cache ? cache->append(layer, keys, values) : std::pair(keys, values);
  }
};

// Returns the pass over whole rows. The batch has input_ids and perhaps attention_mask and
// position_ids, or it was packed by a collator (models/packed_batch.h).
DecoderPass make_decoder_pass(const TensorDict& batch);
// Returns the pass over the next tokens of each row of a cache.
DecoderPass make_decoder_pass(KeyValueCache& cache, std::int64_t tokens);

// A batch for which only the loss is computed.
struct LossInputs {
  at::Tensor ids;  // [batch, length], or [1, tokens] without padding
  DecoderPass pass;
  at::Tensor labels;  // the label after each token, or -100; the shape of ids
};

// Checks the labels of a batch, and leaves out its padding if `packs`.
LossInputs make_loss_inputs(const TensorDict& batch, const PackedBatch::Tables& tables, bool packs);
// Returns the loss of add_causal_lm_outputs without computing all logits at once. hidden [..., n],
// labels [...] as in LossInputs.
at::Tensor causal_lm_loss(const at::Tensor& hidden, const at::Tensor& head,
                          const at::Tensor& labels);

// Sets the logits of each token from out.last_hidden_state. If there are labels [batch, length],
// also sets the loss: the mean cross entropy of each token's logits and the label after it, over
// the labels that are not -100. head [vocabulary, hidden].
void add_causal_lm_outputs(ModelOutput& out, const at::Tensor& head, const at::Tensor& labels);

// Returns the hidden state of the last token of each row that is not padding [batch, hidden], or of
// the first token if all tokens are padding. Without a padding token there may be only one row.
at::Tensor last_tokens(const at::Tensor& hidden, const at::Tensor& ids,
                       const std::optional<std::int64_t>& padding_id);

}  // namespace hasten
