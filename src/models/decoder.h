// File: models/decoder.h (internal)
// The parts that the decoders share: which tokens a pass reads and attends to, and the heads with
// their losses.
//
//   const DecoderPass pass = pass_over(batch);                  // or pass_over(cache, tokens)
//   x = layer->forward(x, pass, /*index=*/0);                   // attends to pass.keys_of(0, k, v)
//   return causal_lm_outputs(*decoder, head_weight, batch, /*loss_only=*/false);
//
// Throws what check_labels throws, and DataError "data.labels". Thread rule: values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "hasten/formats/tensor_dict.h"
#include "hasten/models/key_value_cache.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/ops/ops.h"
#include "models/layers.h"
#include "models/losses.h"
#include "models/packed_batch.h"

namespace hasten {

struct DecoderPass {
  at::Tensor positions;  // [batch or 1, tokens]; undefined: 0, 1, ...
  ops::KeyMask mask;     // causal
  KeyValueCache* cache = nullptr;

  // Returns the keys and values to attend to, which with a cache include those before.
  std::pair<at::Tensor, at::Tensor> keys_of(std::int64_t layer, const at::Tensor& keys,
                                            const at::Tensor& values) const {
    return cache ? cache->append(layer, keys, values) : std::pair(keys, values);
  }
};

// The pass over whole rows: input_ids, and perhaps attention_mask and position_ids, or a batch that a
// collator has packed (models/packed_batch.h).
DecoderPass pass_over(const TensorDict& batch);
// The pass over the next tokens of each row of a cache.
DecoderPass pass_over(KeyValueCache& cache, std::int64_t tokens);

// The tokens of a batch whose loss alone is computed.
struct DecoderRows {
  at::Tensor ids;  // [batch, length], or [1, tokens] without padding
  DecoderPass pass;
  at::Tensor labels;  // of the token after each, in the shape of ids; -100: it does not count
};

// Takes a batch with labels, and leaves out its padding if `packs`. Checks the labels.
DecoderRows rows_of(const TensorDict& batch, const PackedBatch::Tables& tables, bool packs);
// The loss of add_causal_lm_outputs, without whole logits. hidden [..., n], labels [...] as in
// DecoderRows.
at::Tensor causal_lm_loss(const at::Tensor& hidden, const at::Tensor& head,
                          const at::Tensor& labels);

// Sets the logits of each token from out.last_hidden_state, and, if there are labels [batch,
// length], the loss: the mean cross entropy of each token's logits and the label after it, over the
// labels that are not -100. head [vocabulary, hidden].
void add_causal_lm_outputs(ModelOutput& out, const at::Tensor& head, const at::Tensor& labels);

// Returns the hidden state of the last token of each row that is not padding [batch, hidden], or of
// the first token if all are. Without a padding token there may be one row.
at::Tensor last_tokens(const at::Tensor& hidden, const at::Tensor& ids,
                       const std::optional<std::int64_t>& padding_id);

// Returns the outputs of a language model: the loss alone if only that is wanted and the batch has
// labels, else the hidden states, the logits, and the loss if there are labels. `decoder` is the model
// without its head.
template <class Decoder>
ModelOutput causal_lm_outputs(Decoder& decoder, const at::Tensor& head, const TensorDict& batch,
                              bool loss_only) {
  ModelOutput out;
  if (loss_only && has_classes(batch)) {
    const DecoderRows rows = rows_of(batch, {decoder.vocab_size(), decoder.max_length()},
                                     decoder.may_leave_out_padding());
    out.loss = causal_lm_loss(decoder.hidden_states(rows.ids, rows.pass), head, rows.labels);
    return out;
  }
  out = decoder.forward(batch);
  add_causal_lm_outputs(out, head, find_or_undefined(batch, "labels"));
  return out;
}

// Returns the outputs of a classifier of texts, and the loss if there are labels.
template <class Decoder>
ModelOutput classifier_outputs(Decoder& decoder, const Projection& score, const TensorDict& batch) {
  ModelOutput out = decoder.forward(batch);
  out.logits = score(
      last_tokens(out.last_hidden_state, take(batch, "input_ids"), decoder.config().pad_token_id));
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (labels.defined()) out.loss = row_loss(out.logits, labels, decoder.config().problem_type);
  return out;
}

// Returns the logits [rows, vocabulary] of the token after the next tokens of a cache.
template <class Decoder>
at::Tensor next_token_logits(Decoder& decoder, const at::Tensor& head, const at::Tensor& ids,
                             KeyValueCache& cache) {
  const at::Tensor hidden = decoder.forward(ids, cache);
  return ops::linear(hidden.select(1, hidden.size(1) - 1), head, {});
}

}  // namespace hasten
