// File: hasten/data/detail/collectives.h
// Collectives on whole batches: on a TensorDict, or on any type that consists of tensors only
// (TensorBatch in hasten/data/batch.h). Each tensor is exchanged separately, by the method of Group
// with the same name.
//
//   TensorDict all = gather(group, outputs);
//
// All ranks must pass the same structure. Shapes, errors and thread rule: the same as in
// hasten/process/group.h.
#pragma once

#include <utility>

#include "hasten/data/batch.h"
#include "hasten/process/group.h"

namespace hasten {

template <TensorBatch Batch>
Batch gather(const Group& group, Batch batch) {
  visit_tensors(batch, [&](at::Tensor& tensor) { tensor = group.gather(tensor); });
  return batch;
}

template <TensorBatch Batch>
Batch reduce(const Group& group, Batch batch, Reduction reduction = Reduction::sum,
             double scale = 1.0) {
  visit_tensors(batch,
                [&](at::Tensor& tensor) { tensor = group.reduce(tensor, reduction, scale); });
  return batch;
}

template <TensorBatch Batch>
Batch broadcast(const Group& group, Batch batch, std::int64_t from = 0) {
  visit_tensors(batch, [&](at::Tensor& tensor) { tensor = group.broadcast(tensor, from); });
  return batch;
}

template <TensorBatch Batch>
Batch pad_across_processes(const Group& group, Batch batch, std::int64_t dim = 0,
                           double pad_index = 0, bool pad_first = false) {
  visit_tensors(batch, [&](at::Tensor& tensor) {
    tensor = group.pad_across_processes(tensor, dim, pad_index, pad_first);
  });
  return batch;
}

}  // namespace hasten
