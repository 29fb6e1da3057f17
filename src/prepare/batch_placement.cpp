#include "prepare/batch_placement.h"

#include <torch/torch.h>

#include <utility>

#include "hasten/models/training_traits.h"
#include "hasten/prepare/detail/to_device.h"

namespace hasten {
namespace {

// Returns the bounds of packed rows, or an undefined tensor if host memory does not have them.
at::Tensor packed_rows_on_host(const TensorDict& batch) {
  for (const char* const name : {kPackedRowsOnHost, kPackedRows}) {
    const auto found = batch.find(name);
    if (found != batch.end() && found->second.defined() && found->second.is_cpu())
      return found->second;
  }
  return {};
}

}  // namespace

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
