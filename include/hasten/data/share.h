// File: hasten/data/share.h
// Divides the rows of a loader between processes.
//
//   Accelerator accelerator({.dataloader_config = {.even_batches = false}});
//
// A step of all processes takes the next world size * batch_size rows (with split_batches the next
// batch_size rows); rank 0 gets the first ones. Thread rule: values.
// Source: names and defaults of Accelerate's DataLoaderConfiguration.
#pragma once

#include <cstdint>
#include <optional>

#include "hasten/data/static_shapes.h"
#include "hasten/process/group.h"

namespace hasten {

struct DataLoaderConfiguration {
  bool split_batches = false;  // batch_size counts the rows of all processes.
  // Rank 0 reads for all processes, and sends each process its batches ahead of their use. False:
  // each process reads what it needs, which for a stream is everything, or its own part of a stream
  // that has shard() (not with split_batches). Unset: true for streams.
  std::optional<bool> dispatch_batches;
  // Fills up the last step with rows from the start of the epoch, so that all processes have
  // equally many batches of one size. False: a process may have a smaller last batch, or one batch
  // less; a loop with collectives then needs Accelerator::join_uneven_inputs.
  bool even_batches = true;
  // Pads batches with names (TensorDict) to a few shapes before they are moved to the device.
  // Unset: on a TPU.
  std::optional<bool> pad_to_static_shapes;
  StaticShapes static_shapes;
};

// How a loader is divided between virtual ranks (AcceleratorOptions::elastic_ranks). A training
// pass, which is one that begins while gradients are enabled, divides each step between `ranks`
// virtual ranks as between so many processes, and returns the batches of this process's virtual
// ranks: for each optimizer step the batches of the first one, then those of the next. Any other
// pass divides its steps between the processes.
struct ElasticShare {
  std::int64_t ranks = 0;  // 0: there are no virtual ranks
  std::int64_t steps = 1;  // the most steps of a virtual rank in an optimizer step
};

// A process's share: its group, and how the rows are divided.
struct LoaderShare {
  Group group = Group::single();
  DataLoaderConfiguration configuration;
  ElasticShare elastic = {};
};

}  // namespace hasten
