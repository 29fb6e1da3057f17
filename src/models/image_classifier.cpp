#include "hasten/models/detail/image_classifier.h"

#include <torch/torch.h>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "models/layers.h"
#include "models/losses.h"

namespace hasten {

std::optional<double> ImageClassifier::floating_point_ops(const TensorDict& batch) const {
  const at::Tensor pixels = find_or_undefined(batch, "pixel_values");
  if (!pixels.defined()) return std::nullopt;
  return 6.0 * static_cast<double>(pixels.numel()) * static_cast<double>(parameter_count(*this));
}

at::Tensor ImageClassifier::pixels_of(const TensorDict& batch) const {
  const at::Tensor pixels = tensor_at(batch, "pixel_values");
  const ImageShape shape = image_shape();
  const auto fits = [&](std::int64_t place, std::int64_t size) {
    return size == 0 ? pixels.size(place) > 0 : pixels.size(place) == size;
  };
  if (pixels.dim() == 4 && fits(1, shape.channels) && fits(2, shape.height) && fits(3, shape.width))
    return pixels;
  const auto size_text = [](std::int64_t size, const char* name) {
    return size == 0 ? std::string(name) : std::to_string(size);
  };
  throw DataError(
      "models.image-shape",
      {.what = "pixel_values",
       .got = "shape " + c10::str(pixels.sizes()),
       .expected = str("[batch, ", shape.channels, ", ", size_text(shape.height, "height"), ", ",
                       size_text(shape.width, "width"), "]"),
       .hint = "resize the images to the size for which the model was made"});
}

ModelOutput ImageClassifier::classifier_output(at::Tensor logits, const TensorDict& batch) const {
  ModelOutput out;
  const at::Tensor labels = find_or_undefined(batch, "labels");
  if (labels.defined()) out.loss = row_loss(logits, labels, problem_type());
  out.logits = std::move(logits);
  return out;
}

}  // namespace hasten
