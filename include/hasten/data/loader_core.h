// File: hasten/data/loader_core.h
// The part of a loader that does not depend on the type of its batches: options, position, and the
// threads that make batches ahead. Part of hasten/data/loader.h, which documents its use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hasten/base/export.h"
#include "hasten/data/batch_info.h"
#include "hasten/data/context.h"
#include "hasten/data/rebalance.h"
#include "hasten/data/sampler.h"
#include "hasten/data/share.h"

namespace hasten {

// The options of make_loader.
struct LoaderOptions {
  std::int64_t batch_size = 8;       // Rows.
  bool shuffle = false;              // A new order each epoch; not for streams.
  bool drop_last = false;            // Omit a last batch that is not full.
  std::int64_t num_workers = 0;      // Threads; 0: make each batch on the calling thread.
  std::int64_t prefetch_factor = 2;  // Batches that each worker makes ahead.
  // Copies batches to page-locked memory. No effect without CUDA, and on tensors that
  // for_each_tensor (hasten/data/batch.h) does not reach.
  bool pin_memory = false;
  std::uint64_t seed = 42;   // For the order, BatchContext and RowContext.
  OrderFunction order = {};  // The rows of each epoch, instead of shuffle.
  // Divides the rows of an optimizer step into batches of different sizes.
  std::optional<Rebalance> rebalance = {};
};

// The position where the next pass starts, saved with a checkpoint. With the same dataset the same
// rows follow, even with another number of processes or another batch_size.
struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // Number of the batch in each process.
  // Rows of the epoch that all processes together have read. Overrides `batch` unless it is -1
  // (unknown).
  std::int64_t rows = -1;
  bool operator==(const LoaderState&) const = default;
};

namespace detail {

using AnyBatch = std::shared_ptr<void>;

// Makes batches whose type only the Loader<Batch> around it knows.
class HASTEN_API BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Rows per epoch; nothing for a stream that does not know.
  virtual std::optional<std::int64_t> rows() const = 0;
  virtual bool is_stream() const = 0;
  // Makes a batch of a map dataset. Called on several threads at once.
  virtual AnyBatch make(std::span<const std::int64_t> indices, const BatchContext& context) = 0;
  // Moves a stream to the start of an epoch, and keeps copies of the first `keep` rows it reads
  // then.
  virtual void rewind(std::int64_t epoch, std::int64_t keep) = 0;
  virtual void skip(std::int64_t rows) = 0;
  // True if a stream can be divided into parts; shard() leaves it one of them.
  virtual bool is_shardable() const = 0;
  virtual void shard(std::int64_t num_shards, std::int64_t index) = 0;
  // Reads the rows of the next step, `rows` or as many as are left, and returns their number.
  virtual std::int64_t read(std::int64_t rows) = 0;
  // Makes a batch of `rows` rows of that step, beginning with row `first`. Past its last row the
  // kept rows follow. Each row is moved out, so only one batch may use it. The step begins with
  // row `step_start` of the epoch.
  virtual AnyBatch make_from_read(std::int64_t first, std::int64_t rows, std::int64_t step_start,
                                  const BatchContext& context) = 0;
  // Converts a batch to bytes and back (hasten/data/pack.h); is_packable() returns whether its type
  // allows that.
  virtual bool is_packable() const = 0;
  virtual at::Tensor to_bytes(const AnyBatch& batch) const = 0;
  virtual AnyBatch from_bytes(const at::Tensor& bytes) const = 0;
};

// The implementation of Loader<Batch>, without the type of the batches.
class HASTEN_API LoaderCore {
 public:
  LoaderCore(std::unique_ptr<BatchSource> source, LoaderOptions options);
  ~LoaderCore();

  std::int64_t start_pass();  // Returns the number of the pass.
  void end_pass(std::int64_t pass);
  void advance(std::int64_t pass);
  void* current(std::int64_t pass) const;
  const BatchInfo& info(std::int64_t pass) const;
  bool done(std::int64_t pass) const;

  bool is_last() const;
  std::int64_t epoch() const;
  std::int64_t batch() const;
  std::optional<std::int64_t> batches() const;
  std::optional<std::int64_t> rows() const;
  bool reads_part() const;
  const LoaderOptions& options() const;
  void share(const LoaderShare& share);
  void set_even_batches(bool even);
  LoaderState state() const;
  void load_state(const LoaderState& state);
  void set_epoch(std::int64_t epoch);
  void seek(std::int64_t batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

[[noreturn]] HASTEN_API void throw_unknown_size(const char* call);
[[noreturn]] HASTEN_API void throw_no_copies();
[[noreturn]] HASTEN_API void throw_empty_part();
// Returns a page-locked copy if CUDA is available and the tensor is in ordinary memory, otherwise
// the tensor itself.
HASTEN_API at::Tensor pinned(const at::Tensor& tensor);

}  // namespace detail

}  // namespace hasten
