// File: hasten/prepare/to_device.h
// Moving a batch to a device, whatever its type.
//
//   batch = to_device(std::move(batch), at::Device(at::kCUDA, 0));
//
// Knows what visit_tensors (hasten/data/batch.h) knows: tensors, maps, vectors and pairs of such,
// types with members `data` and `target`, and your own type once it has a visit_tensors; and of
// batches with strings and numbers among them (hasten/data/carry.h) the tensors. Other types stay
// as they are. Pinned memory is copied without waiting for it. Thread rule: a pure
// function.
#pragma once

#include <utility>

#include "hasten/data/carry.h"

namespace hasten {

template <class Batch>
Batch to_device(Batch batch, at::Device device) {
  for_each_tensor(batch, [device](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device)
      tensor = tensor.to(device, /*non_blocking=*/tensor.is_pinned());
  });
  return batch;
}

}  // namespace hasten
