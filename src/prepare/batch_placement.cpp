#include "prepare/batch_placement.h"

#include <torch/torch.h>

#include <utility>

#include "data/static_packed_rows.h"
#include "hasten/models/training_traits.h"
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
  const at::Tensor on_host = device.is_cpu() ? at::Tensor() : packed_rows_on_host(batch);
  batch.erase(kPackedRowsOnHost);
  TensorDict placed = to_device(std::move(batch), device);
  if (on_host.defined()) placed[kPackedRowsOnHost] = on_host;
  return placed;
}

std::optional<at::ScalarType> BatchPlacement::type_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.scalar_type() != at::kDouble) return std::nullopt;
  return double_type;
}

}  // namespace hasten
