// File: prepare/batch_placement.h (internal)
// Moves the batches of one Accelerator to its device, with the shapes and types that it needs.
//
//   const BatchPlacement placement{.device = device, .pads = true};
//   batch = placement.place(std::move(batch), 8);
//
// Throws DataError "data.static-length". Thread rule: a value.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "hasten/data/detail/static_shapes.h"

namespace hasten {

struct BatchPlacement {
  at::Device device = at::kCPU;
  // True if prepared loaders move their batches, and prepare() moves models.
  bool moves = true;
  // True if batches with names are padded to `shapes`.
  bool pads = false;
  StaticShapes shapes = {};
  // The type that double numbers get on the device. If unset, they stay double.
  std::optional<at::ScalarType> double_type = std::nullopt;

  // Returns the batch on the device, with the shapes and types that it needs there. `rows` is the
  // number of rows of a full batch.
  TensorDict place(TensorDict batch, std::int64_t rows) const;
  // The type that the tensor gets on the device, or nullopt if it keeps its own.
  std::optional<at::ScalarType> type_of(const at::Tensor& tensor) const;
};

}  // namespace hasten
