// File: hasten/data/detail/loader_options.h
// The options of make_loader, and the position of a loader (hasten/data/loader.h).
//
//   auto loader = make_loader(dataset, LoaderOptions{.batch_size = 8, .shuffle = true});
//   const LoaderState position = loader.state();
//
// make_loader throws ConfigError "data.option" for options that contradict each other. Thread rule:
// values.
#pragma once

#include <cstdint>
#include <optional>

#include "hasten/data/detail/rebalance.h"
#include "hasten/data/sampler.h"

namespace hasten {

// The options of make_loader.
struct LoaderOptions {
  std::int64_t batch_size = 8;       // Rows.
  bool shuffle = false;              // A new order each epoch; not for streams.
  bool drop_last = false;            // Omit a last batch that is not full.
  std::int64_t num_workers = 0;      // Threads; 0 makes each batch on the calling thread.
  std::int64_t prefetch_factor = 2;  // Batches that each worker makes ahead.
  // Copies batches to page-locked memory. Has no effect without CUDA, or on tensors that
  // for_each_tensor (hasten/data/batch.h) does not reach.
  bool pin_memory = false;
  std::uint64_t seed = 42;   // For the order, BatchContext and RowContext.
  OrderFunction order = {};  // The rows of each epoch, instead of shuffle.
  // Divides the rows of an optimizer step into batches of different sizes.
  std::optional<Rebalance> rebalance = {};
};

// The position where the next pass starts, saved with a checkpoint. With the same dataset, the same
// rows follow, even with a different number of processes or a different batch_size.
struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // Number of the batch in each process.
  // Rows of the epoch that all processes together have read. Overrides `batch` unless it is -1
  // (unknown).
  std::int64_t rows = -1;
  bool operator==(const LoaderState&) const = default;
};

}  // namespace hasten
