#include "models/decoder.h"

#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

namespace {

DecoderPass make_packed_pass(const PackedBatch& packed) {
  return {.positions = as_int64(packed.batch.at("position_ids")), .mask = packed.mask.causal()};
}

// Labels are shifted within their rows, so they must have the shape of the tokens.
void require_label_per_token(at::IntArrayRef tokens, const at::Tensor& labels) {
  if (labels.sizes() != tokens) throw_label_count(tokens, labels);
}

}  // namespace

DecoderPass make_decoder_pass(const TensorDict& batch) {
  if (batch.contains(kPackedRows)) return make_packed_pass(*PackedBatch::of(batch, {}));
  return {.positions = as_int64(find_or_undefined(batch, "position_ids")),
          .mask = ops::KeyMask(find_or_undefined(batch, "attention_mask")).causal()};
}

DecoderPass make_decoder_pass(KeyValueCache& cache, std::int64_t tokens) {
  return {.positions = cache.positions(tokens), .mask = cache.mask(tokens), .cache = &cache};
}

LossInputs make_loss_inputs(const TensorDict& batch, const PackedBatch::Tables& tables,
                            bool packs) {
  const at::Tensor labels = tensor_at(batch, "labels").to(at::kLong);
  require_label_per_token(tensor_at(batch, "input_ids").sizes(), labels);
  check_labels(labels, tables.words);
  TensorDict without_types = batch;  // decoders have none
  without_types.erase("token_type_ids");
  // Labels are shifted before masked tokens are left out: the token before a masked one predicts
  // that one, not the next token that is left. The texts of a collator have no masked tokens.
  const bool is_packed = batch.contains(kPackedRows);
  without_types["labels"] = is_packed ? labels : next_token_labels(labels, {});
  const auto packed = packs || is_packed ? PackedBatch::of(without_types, tables) : std::nullopt;
  if (!packed)
    return {as_int64(tensor_at(batch, "input_ids")), make_decoder_pass(batch),
            without_types.at("labels")};
  const at::Tensor& own = tensor_at(packed->batch, "labels");
  return {as_int64(tensor_at(packed->batch, "input_ids")), make_packed_pass(*packed),
          is_packed ? next_token_labels(own, packed->mask.lengths()) : own};
}

at::Tensor causal_lm_loss(const at::Tensor& hidden, const at::Tensor& head,
                          const at::Tensor& labels) {
  const LabelledTokens tokens = labelled_tokens(hidden, labels);
  return ops::linear_cross_entropy(tokens.hidden, head, {}, tokens.labels, kIgnoredLabel);
}

void add_causal_lm_outputs(ModelOutput& out, const at::Tensor& head, const at::Tensor& labels) {
  out.logits = ops::linear(out.last_hidden_state, head, {});
  if (!labels.defined()) return;
  require_classes(labels);
  require_label_per_token(outer_shape(out.logits), labels);
  // The labels are checked before they are shifted: in a dry run the copy has no content.
  check_labels(labels.to(at::kLong), head.size(0));
  out.loss = checked_cross_entropy(out.logits.to(at::kFloat), shifted_labels(labels.to(at::kLong)));
}

at::Tensor last_tokens(const at::Tensor& hidden, const at::Tensor& ids,
                       const std::optional<std::int64_t>& padding_id) {
  if (!padding_id && hidden.size(0) > 1) {
    throw DataError("models.no-padding-token",
                    {.what = "a batch of texts to classify",
                     .got = str(hidden.size(0), " rows, and a configuration without pad_token_id"),
                     .expected = "one row, or a token for padding",
                     .hint = "set pad_token_id in config.json"});
  }
  if (!padding_id) return hidden.select(1, hidden.size(1) - 1);
  const at::Tensor positions = at::arange(ids.size(1), ids.options().dtype(at::kLong));
  const at::Tensor last = ids.ne(*padding_id).to(at::kLong).mul(positions).argmax(-1);
  return hidden.gather(1, last.view({-1, 1, 1}).expand({-1, 1, hidden.size(2)})).squeeze(1);
}

}  // namespace hasten
