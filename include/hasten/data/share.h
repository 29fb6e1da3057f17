// File: hasten/data/share.h
// How several processes share the rows of a loader.
//
//   Accelerator accelerator({.dataloader_config = {.even_batches = false}});
//
// A step of all processes together takes the next world * batch_size rows (with split_batches the
// next batch_size), rank 0 the first of them. Thread rule: values.
// Source: the names and defaults of accelerate's DataLoaderConfiguration.
#pragma once

#include <optional>

#include "hasten/data/static_shapes.h"
#include "hasten/process/group.h"

namespace hasten {

struct DataLoaderConfiguration {
  bool split_batches = false;  // batch_size is that of all processes together
  // Rank 0 alone reads, and sends each process its batches, ahead of their use. false: each process
  // reads what it needs, of a stream everything. Unset: true for streams.
  std::optional<bool> dispatch_batches;
  // The last step is filled up with rows from the epoch's beginning, so that every process has as
  // many batches, all of one size. false: a process may have a smaller last batch, or one batch
  // less; loops that exchange anything then stand inside Accelerator::join_uneven_inputs.
  bool even_batches = true;
  // Batches with names (TensorDict) are padded to a few shapes before they go to the device. Unset:
  // on a TPU.
  std::optional<bool> pad_to_static_shapes;
  StaticShapes static_shapes;
};

struct LoaderShare {
  Group group = Group::single();
  DataLoaderConfiguration how;
};

}  // namespace hasten
