// File: hasten/prepare/detail/to_device.h
// Moves the tensors of a batch of any type to a device.
//
//   batch = to_device(std::move(batch), at::Device(at::kCUDA, 0));
//
// It moves the tensors that for_each_tensor (hasten/data/batch.h) reaches: tensors in standard
// containers, torch::data's examples and plain structs, nested to any depth, and in a class with a
// visit_tensors function. Other types are returned unchanged. A struct whose members hasten cannot
// see does not compile. Tensors in pinned memory are copied asynchronously. Thread rule: a pure
// function.
#pragma once

#include <utility>

#include "hasten/data/batch.h"

namespace hasten {

template <class Batch>
Batch to_device(Batch batch, at::Device device) {
  static_assert(!detail::has_unreachable_members<Batch>(),
                "hasten cannot reach the members of this batch, so its tensors would stay on their "
                "device. Define visit_tensors in the namespace of the type: hasten/data/batch.h");
  for_each_tensor(batch, [device](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device)
      tensor = tensor.to(device, /*non_blocking=*/tensor.is_pinned());
  });
  return batch;
}

}  // namespace hasten
