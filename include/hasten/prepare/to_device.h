// File: hasten/prepare/to_device.h
// Moving a batch to a device, whatever its type.
//
//   batch = to_device(std::move(batch), at::Device(at::kCUDA, 0));
//
// Reaches the tensors that for_each_tensor (hasten/data/batch.h) reaches: in standard containers,
// torch::data's examples and plain structs, nested as you like, and in a class of your own once it
// has a visit_tensors. Other types stay as they are; a struct that cannot be looked into does not
// compile. Pinned memory is copied without waiting for it. Thread rule: a pure function.
#pragma once

#include <utility>

#include "hasten/data/batch.h"

namespace hasten {

template <class Batch>
Batch to_device(Batch batch, at::Device device) {
  static_assert(!detail::hides_members<Batch>(),
                "hasten cannot see the members of this batch, so its tensors would not be moved to "
                "the device. Put a visit_tensors beside the type: hasten/data/batch.h");
  for_each_tensor(batch, [device](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device)
      tensor = tensor.to(device, /*non_blocking=*/tensor.is_pinned());
  });
  return batch;
}

}  // namespace hasten
