// File: hasten/prepare/detail/to_device.h
// Moves the tensors of a batch of any type to a device.
//
//   batch = to_device(std::move(batch), at::Device(at::kCUDA, 0));
//
// It moves the tensors that for_each_tensor (hasten/data/batch.h) reaches: tensors in standard
// containers, torch::data's examples and plain structs, nested to any depth, and in a class with a
// visit_tensors function. Other types are returned unchanged. A struct whose members hasten cannot
// see does not compile.
//
// On a GPU, the copies of dense tensors run on a stream of their own. So the copy of a batch in
// pinned memory runs while the GPU computes the step before it, and the host does not wait. The
// current stream of the calling thread waits for the copies before it computes anything that is
// submitted later. Two batches are then in the memory of the GPU: the one that it computes with and
// the next one. A program that uses a batch on another stream makes that stream wait for the
// current one, as with any tensor. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"

namespace hasten {

namespace detail {

// Copies the tensors of one batch to a device.
class HASTEN_API BatchCopy {
 public:
  explicit BatchCopy(at::Device device) : device_(device) {}

  at::Tensor copy(const at::Tensor& tensor);
  // Makes the stream that was current at the first copy wait for all copies.
  void finish();

 private:
  // The streams of a device that copies while it computes.
  struct Streams {
    c10::Stream computing, copying;
  };
  at::Tensor copy_in_background(const at::Tensor& tensor);

  at::Device device_;
  std::optional<Streams> streams_;  // unset before the first copy on a stream of its own
};

}  // namespace detail

template <class Batch>
Batch to_device(Batch batch, at::Device device) {
  static_assert(!detail::has_unreachable_members<Batch>(),
                "hasten cannot reach the members of this batch, so its tensors would stay on their "
                "device. Define visit_tensors in the namespace of the type: hasten/data/batch.h");
  detail::BatchCopy copies(device);
  for_each_tensor(batch, [&](at::Tensor& tensor) {
    if (tensor.defined() && tensor.device() != device) tensor = copies.copy(tensor);
  });
  copies.finish();
  return batch;
}

}  // namespace hasten
