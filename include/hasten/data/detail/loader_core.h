// File: hasten/data/detail/loader_core.h
// The part of a loader that does not depend on the type of its batches: its position, and the
// threads that make batches ahead. Part of hasten/data/loader.h, which documents its use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hasten/base/detail/export.h"
#include "hasten/data/context.h"
#include "hasten/data/detail/batch_info.h"
#include "hasten/data/detail/loader_options.h"
#include "hasten/data/detail/loader_sharding.h"

namespace hasten::detail {

using ErasedBatch = std::shared_ptr<void>;

// Makes batches. Only the enclosing Loader<Batch> knows their type.
class HASTEN_API BatchSource {
 public:
  virtual ~BatchSource() = default;
  // The number of rows per epoch; unset for a stream that does not know it.
  virtual std::optional<std::int64_t> rows() const = 0;
  virtual bool is_stream() const = 0;
  // Makes a batch of a map dataset. Called on several threads at once.
  virtual ErasedBatch make(std::span<const std::int64_t> indices, const BatchContext& context) = 0;
  // Moves a stream to the start of an epoch, and keeps copies of the first `keep` rows that it then
  // reads.
  virtual void rewind(std::int64_t epoch, std::int64_t keep) = 0;
  virtual void skip(std::int64_t rows) = 0;
  // True if a stream can be divided into shards; shard() makes it return only one of them.
  virtual bool is_shardable() const = 0;
  virtual void shard(std::int64_t num_shards, std::int64_t index) = 0;
  // Reads the rows of the next step: `rows`, or fewer if the stream ends. Returns their number.
  virtual std::int64_t read(std::int64_t rows) = 0;
  // Makes a batch of `rows` rows of that step, beginning with row `first`. After the last row of
  // the step, the kept rows follow. Each row is moved out, so only one batch may use it. The step
  // begins with row `step_start` of the epoch.
  virtual ErasedBatch make_from_read_rows(std::int64_t first, std::int64_t rows,
                                          std::int64_t step_start, const BatchContext& context) = 0;
  // Converts a batch to bytes and back (hasten/data/detail/pack.h); is_packable() is true if its
  // type allows that.
  virtual bool is_packable() const = 0;
  virtual at::Tensor to_bytes(const ErasedBatch& batch) const = 0;
  virtual ErasedBatch from_bytes(const at::Tensor& bytes) const = 0;
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
  bool reads_shard() const;
  const LoaderOptions& options() const;
  void set_sharding(const LoaderSharding& sharding);
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
[[noreturn]] HASTEN_API void throw_empty_shard();
// Returns a page-locked copy if CUDA is available and the tensor is in ordinary memory, otherwise
// the tensor itself.
HASTEN_API at::Tensor pinned(const at::Tensor& tensor);

}  // namespace hasten::detail
