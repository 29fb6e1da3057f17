// File: hasten/data/loader_core.h
// Everything about a loader that does not depend on the type of its batches: its options, its
// position, and the machine that makes batches ahead. Part of hasten/data/loader.h, where the rules
// of use are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hasten/data/batch.h"
#include "hasten/data/context.h"
#include "hasten/data/sampler.h"

namespace hasten {

struct LoaderOptions {
  std::int64_t batch_size = 8;       // rows
  bool shuffle = false;              // a new order each epoch; not for streams
  bool drop_last = false;            // leave out a last batch that is not full
  std::int64_t num_workers = 0;      // threads; 0: the calling thread makes each batch in its turn
  std::int64_t prefetch_factor = 2;  // batches made ahead a worker
  // Batches in page-locked memory. Does nothing without CUDA, and for types of batches that
  // visit_tensors (hasten/data/batch.h) does not know.
  bool pin_memory = false;
  std::uint64_t seed = 42;   // of the order, and of BatchContext and RowContext
  OrderFunction order = {};  // the rows of each epoch, instead of shuffle
};

// Where the next pass starts. Saved with a checkpoint; with the same dataset and batch_size the
// rows that follow are the same.
struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;
  bool operator==(const LoaderState&) const = default;
};

// The part of the rows that one of several processes reads. A step of all processes together takes
// the next world * batch_size rows (with split_batches the next batch_size), rank 0 the first of
// them; the last step is filled up with rows from the epoch's beginning, so that every process has
// as many batches, all of one size.
struct LoaderShare {
  std::int64_t rank = 0;
  std::int64_t world = 1;
  bool split_batches = false;  // batch_size is that of all processes together
};

namespace detail {

using AnyBatch = std::shared_ptr<void>;

// Makes batches whose type only the Loader<Batch> around it knows.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Rows of an epoch; nothing for a stream that does not know.
  virtual std::optional<std::int64_t> rows() const = 0;
  virtual bool is_stream() const = 0;
  // Of a map dataset; from several threads at once.
  virtual AnyBatch make(std::span<const std::int64_t> indices, const BatchContext& context) = 0;
  // Of a stream: the next rows, null at the end.
  virtual AnyBatch next(const LoaderOptions& options, const BatchContext& context) = 0;
  virtual void rewind(std::int64_t epoch) = 0;
  virtual void skip(std::int64_t rows) = 0;
};

// Everything about a loader that does not depend on the type of its batches.
class LoaderCore {
 public:
  LoaderCore(std::unique_ptr<BatchSource> source, LoaderOptions options);
  ~LoaderCore();

  std::int64_t start_pass();  // the pass's number
  void end_pass(std::int64_t pass);
  void advance(std::int64_t pass);
  void* current(std::int64_t pass) const;
  bool done(std::int64_t pass) const;

  bool is_last() const;
  std::int64_t epoch() const;
  std::int64_t batch() const;
  std::optional<std::int64_t> batches() const;
  std::optional<std::int64_t> rows() const;
  const LoaderOptions& options() const;
  void share(const LoaderShare& share);
  std::int64_t rows_at_hand() const;
  std::int64_t real_rows_at_hand() const;
  LoaderState state() const;
  void load_state(const LoaderState& state);
  void set_epoch(std::int64_t epoch);
  void seek(std::int64_t batch);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

[[noreturn]] void throw_unknown_size(const char* call);
// Page-locked, if there is CUDA and the tensor is in ordinary memory.
at::Tensor pinned(const at::Tensor& tensor);

}  // namespace detail

}  // namespace hasten
