// The losses of the heads. Labels are checked first: LibTorch's errors do not say
// where a wrong one is.
#pragma once

#include <torch/torch.h>

#include "data/padding.h"
#include "data/problem_type.h"
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

// Returns the mean over the labels that are not -100; logits [..., classes], labels [...].
inline at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& given) {
  const std::int64_t classes = logits.size(-1);
  if (given.is_floating_point()) {
    throw DataError("data.labels", {.what = "labels of a classification into one class each",
                                    .got = c10::toString(given.scalar_type()),
                                    .expected = "whole numbers",
                                    .hint = "check that the model's problem_type fits the data"});
  }
  const at::Tensor labels = given.to(at::kLong);
  check_labels(labels, classes);
  return at::cross_entropy_loss(logits.reshape({-1, classes}), labels.reshape({-1}), {},
                                at::Reduction::Mean, kIgnoredLabel);
}

// Returns the loss of a model that classifies rows. logits [batch, num_labels]; an empty problem type
// means that the labels decide.
inline at::Tensor row_loss(const at::Tensor& given, const at::Tensor& labels,
                           const std::string& problem_type) {
  const at::Tensor logits = given.to(at::kFloat);
  const std::string problem =
      problem_type_of(problem_type, logits.size(-1), labels.is_floating_point());
  if (problem == kSingleLabel) return cross_entropy(logits, labels);
  if (problem == kMultiLabel)
    return at::binary_cross_entropy_with_logits(logits, labels.to(at::kFloat));
  const at::Tensor predicted = logits.size(-1) == 1 ? logits.squeeze(-1) : logits;
  return at::mse_loss(predicted, labels.to(at::kFloat).reshape(predicted.sizes()));
}

}  // namespace hasten
