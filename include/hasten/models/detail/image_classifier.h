// File: hasten/models/detail/image_classifier.h
// The base class of the models that classify images.
//
//   std::shared_ptr<PreTrainedModel> model = load_model("google/vit-base-patch16-224",
//                                                       {.task = Task::image_classification}).model;
//   ModelOutput out = model->forward({{"pixel_values", at::zeros({8, 3, 224, 224})}});
//
// pixel_values is floating-point [batch, channels, height, width]; hasten/data/images.h makes it
// from files. logits [batch, num_labels]. The loss is the same as in BertForSequenceClassification.
// Throws DataError "data.missing-tensor", "models.image-shape", "models.label-out-of-range". Thread
// rule: one thread at a time.
#pragma once

#include <cstdint>

#include "hasten/base/detail/export.h"
#include "hasten/models/pretrained_model.h"

namespace hasten {

// The sizes of an image; a height or width of 0 means any.
struct ImageShape {
  std::int64_t channels = 3, height = 0, width = 0;
};

class HASTEN_API ImageClassifier : public PreTrainedModel {
 public:
  // The images that forward() takes.
  virtual ImageShape image_shape() const = 0;

  // Images have no tokens.
  std::int64_t max_length() const override { return 0; }
  std::int64_t vocab_size() const override { return 0; }
  // Counts six for each value of pixel_values and each parameter, as the Hugging Face Trainer does
  // for total_flos, because it counts each value as a token. The true number of operations is
  // unrelated.
  std::optional<double> floating_point_ops(const TensorDict& batch) const override;

 protected:
  // Returns pixel_values after checking their shape.
  at::Tensor pixels_of(const TensorDict& batch) const;
  // Returns the outputs for these logits, with a loss if the batch has labels.
  ModelOutput classifier_output(at::Tensor logits, const TensorDict& batch) const;
};

}  // namespace hasten
