// File: models/losses.h (internal)
// The losses of the heads. Labels are checked first, because LibTorch's errors do not name the
// position of a wrong label.
#pragma once

#include <torch/torch.h>

#include <algorithm>

#include "data/padding.h"
#include "data/problem_type.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

inline void check_labels(const at::Tensor& labels, std::int64_t num_labels) {
  if (!labels.device().is_cpu()) return;
  const at::Tensor flat = labels.contiguous();
  const std::int64_t* label = flat.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    if (label[i] != kIgnoredLabel && (label[i] < 0 || label[i] >= num_labels)) {
      throw DataError(
          "models.label-out-of-range",
          {.what = str("labels, entry ", i, " of the batch"),
           .got = str(label[i]),
           .expected = str("0 to ", num_labels - 1, " (or ", kIgnoredLabel, ": ignored)"),
           .hint = "check that num_labels fits the data"});
    }
  }
}

// `classified` is the expected shape of the labels: the shape of the logits without the last
// dimension.
[[noreturn]] inline void throw_label_count(at::IntArrayRef classified, const at::Tensor& labels) {
  throw DataError("data.labels", {.what = "the labels of a batch",
                                  .got = "shape " + shape_text(labels.sizes()),
                                  .expected = shape_text(classified)});
}

// Returns the shape of x without its last dimension.
inline at::IntArrayRef outer_shape(const at::Tensor& x) {
  return x.sizes().slice(0, static_cast<std::size_t>(x.dim()) - 1);
}

// Refuses labels that are not classes.
inline void require_classes(const at::Tensor& labels) {
  if (!labels.is_floating_point()) return;
  throw DataError("data.labels", {.what = "labels of a classification into one class each",
                                  .got = c10::toString(labels.scalar_type()),
                                  .expected = "whole numbers",
                                  .hint = "check that the model's problem_type fits the data"});
}

// Returns the labels [..., length] for models in which the logits of a token predict the next
// token. Each is the label of the token after it, and the last token has none.
inline at::Tensor shifted_labels(const at::Tensor& labels) {
  return at::constant_pad_nd(labels, {0, 1}, kIgnoredLabel).narrow(-1, 1, labels.size(-1));
}

// Returns the mean over the labels that are not -100; logits [..., classes], labels [...] int64.
inline at::Tensor checked_cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}), {},
                                at::Reduction::Mean, kIgnoredLabel);
}

// Does the same for labels of any integer type, which it checks.
inline at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& given) {
  require_classes(given);
  if (given.numel() * logits.size(-1) != logits.numel())
    throw_label_count(outer_shape(logits), given);
  const at::Tensor labels = given.to(at::kLong);
  check_labels(labels, logits.size(-1));
  return checked_cross_entropy(logits, labels);
}

// Some tokens and their labels.
struct LabelledTokens {
  at::Tensor hidden;  // [tokens, n]
  at::Tensor labels;  // [tokens] int64
};

// Leaves out the tokens without a label, unless reading the labels would wait for a device. hidden
// [..., n], labels [...].
inline LabelledTokens labelled_tokens(const at::Tensor& hidden, const at::Tensor& given) {
  LabelledTokens all{hidden.reshape({-1, hidden.size(-1)}), given.to(at::kLong).reshape({-1})};
  if (all.labels.size(0) != all.hidden.size(0)) throw_label_count(outer_shape(hidden), given);
  if (!all.labels.device().is_cpu()) return all;
  const at::Tensor flat = all.labels.contiguous();
  const std::int64_t* const label = flat.const_data_ptr<std::int64_t>();
  const std::int64_t count = flat.numel() - std::count(label, label + flat.numel(), kIgnoredLabel);
  // The mean over no labels is NaN, and its computation needs a token.
  if (count == 0 || count == flat.numel()) return all;
  const at::Tensor indices = at::empty({count}, at::kLong), labels = at::empty({count}, at::kLong);
  std::int64_t* index = indices.mutable_data_ptr<std::int64_t>();
  std::int64_t* kept = labels.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    if (label[i] == kIgnoredLabel) continue;
    *index++ = i;
    *kept++ = label[i];
  }
  return {all.hidden.index_select(0, indices), labels};
}

// Returns the factor from the mean over all labels to the mean over those that count. It is 1 if
// all count, so that the loss and its gradients keep their bits.
inline at::Tensor factor_of_counted(const at::Tensor& counted) {
  return static_cast<double>(counted.numel()) / counted.sum().clamp_min(1).to(at::kFloat);
}

// Returns the loss of a model that classifies rows. logits [batch, num_labels]; an empty problem
// type means that the labels decide. A label of -100 does not count if labels are whole numbers,
// also in a regression: it marks a row that fills up a batch (with_static_shape).
inline at::Tensor row_loss(const at::Tensor& given, const at::Tensor& labels,
                           const std::string& problem_type) {
  const at::Tensor logits = given.to(at::kFloat);
  const std::string problem =
      problem_type_of(problem_type, logits.size(-1), labels.is_floating_point());
  if (problem == kSingleLabel) return cross_entropy(logits, labels);
  const bool may_be_marked = !labels.is_floating_point();
  if (problem == kMultiLabel) {
    const at::Tensor numbers = labels.to(at::kFloat);
    if (!may_be_marked) return at::binary_cross_entropy_with_logits(logits, numbers);
    const at::Tensor counted = labels.ne(kIgnoredLabel);
    return at::binary_cross_entropy_with_logits(logits, numbers, counted.to(at::kFloat)) *
           factor_of_counted(counted);
  }
  const at::Tensor predicted = logits.size(-1) == 1 ? logits.squeeze(-1) : logits;
  const at::Tensor numbers = labels.to(at::kFloat).reshape(predicted.sizes());
  if (!may_be_marked) return at::mse_loss(predicted, numbers);
  const at::Tensor counted = numbers.ne(kIgnoredLabel);
  return at::mse_loss(predicted, at::where(counted, numbers, predicted.detach())) *
         factor_of_counted(counted);
}

}  // namespace hasten
