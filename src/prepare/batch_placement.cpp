#include "prepare/batch_placement.h"

#include <torch/torch.h>

#include <utility>

#include "hasten/prepare/detail/to_device.h"

namespace hasten {

TensorDict BatchPlacement::place(TensorDict batch, std::int64_t rows) const {
  if (pads) batch = with_static_shape(batch, rows, shapes);
  for (auto& [name, tensor] : batch) {
    const auto type = type_of(tensor);
    // Labels become float even if other doubles become bfloat16, because rounding them would change
    // the loss.
    if (type) tensor = tensor.to(name == shapes.labels ? at::kFloat : *type);
  }
  return to_device(std::move(batch), device);
}

std::optional<at::ScalarType> BatchPlacement::type_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.scalar_type() != at::kDouble) return std::nullopt;
  return double_type;
}

}  // namespace hasten
