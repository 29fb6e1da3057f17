// File: hasten/data/detail/loader_sharding.h
// Divides the rows of a loader between processes.
//
//   Accelerator accelerator({.dataloader_config = {.even_batches = false}});
//
// A step of all processes uses the next world size * batch_size rows (with split_batches the next
// batch_size rows); rank 0 gets the first ones. Thread rule: values.
// Source: names and defaults of Accelerate's DataLoaderConfiguration.
#pragma once

#include <cstdint>
#include <optional>

#include "hasten/data/detail/static_shapes.h"
#include "hasten/process/group.h"

namespace hasten {

struct DataLoaderConfiguration {
  bool split_batches = false;  // batch_size counts the rows of all processes.
  // If true, rank 0 reads for all processes, and sends each process its batches ahead of their use.
  // If false, each process reads what it needs: for a stream this is the whole stream, or the
  // process's own part if the stream has shard() and split_batches is off. If unset, true for
  // streams.
  std::optional<bool> dispatch_batches = {};
  // Fills up the last step with rows from the start of the epoch, so that all processes have the
  // same number of batches of one size. If false, a process may have a smaller last batch, or one
  // batch fewer; a loop with collectives then needs Accelerator::join_uneven_inputs.
  bool even_batches = true;
  // Pads batches with names (TensorDict) to a few shapes before they are moved to the device. If
  // unset, true on a TPU.
  std::optional<bool> pad_to_static_shapes = {};
  StaticShapes static_shapes = {};
};

// The division of a loader between virtual ranks (AcceleratorOptions::elastic_ranks). A training
// pass, which is a pass that begins while gradients are enabled, divides each step between `ranks`
// virtual ranks as if they were processes. It returns the batches of this process's virtual ranks:
// for each optimizer step, the batches of the first virtual rank, then the batches of the next one.
// Any other pass divides its steps between the processes.
struct ElasticSharding {
  std::int64_t ranks = 0;  // 0 if there are no virtual ranks
  std::int64_t steps = 1;  // the maximum number of steps of a virtual rank in an optimizer step
};

// The sharding of a loader: the group of its processes, and how they divide the rows.
struct LoaderSharding {
  Group group = Group::single();
  DataLoaderConfiguration configuration = {};
  ElasticSharding elastic = {};
};

}  // namespace hasten
