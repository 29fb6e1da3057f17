// File: hasten/data/loader_core.h
// Everything about a loader that does not depend on the type of its batches: its options, its
// position, and the machine that makes batches ahead. Part of hasten/data/loader.h, where the rules
// of use are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "hasten/data/context.h"
#include "hasten/data/sampler.h"
#include "hasten/data/share.h"

namespace hasten {

struct LoaderOptions {
  std::int64_t batch_size = 8;       // rows
  bool shuffle = false;              // a new order each epoch; not for streams
  bool drop_last = false;            // leave out a last batch that is not full
  std::int64_t num_workers = 0;      // threads; 0: the calling thread makes each batch in its turn
  std::int64_t prefetch_factor = 2;  // batches made ahead a worker
  // Batches in page-locked memory. Does nothing without CUDA, and for tensors that for_each_tensor
  // (hasten/data/batch.h) does not reach.
  bool pin_memory = false;
  std::uint64_t seed = 42;   // of the order, and of BatchContext and RowContext
  OrderFunction order = {};  // the rows of each epoch, instead of shuffle
};

// Where the next pass starts. Saved with a checkpoint; with the same dataset the rows that follow
// are the same, also with another number of processes or another batch_size.
struct LoaderState {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // of each process
  // Of the epoch, that all processes together have had; it counts where it is known (not -1).
  std::int64_t rows = -1;
  bool operator==(const LoaderState&) const = default;
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
  // Of a stream: to the start of an epoch, whose first `keep` rows are kept.
  virtual void rewind(std::int64_t epoch, std::int64_t keep) = 0;
  virtual void skip(std::int64_t rows) = 0;
  // The rows of a step, `rows` of them or what is left: their number.
  virtual std::int64_t read(std::int64_t rows) = 0;
  // A batch of the rows that were read last, from `first` on, each in one batch; where they end,
  // the kept ones follow.
  virtual AnyBatch make_of_read(std::int64_t first, std::int64_t rows,
                                const BatchContext& context) = 0;
  // As bytes, to travel (hasten/data/carry.h), if its type can.
  virtual bool carries() const = 0;
  virtual at::Tensor packed(const AnyBatch& batch) const = 0;
  virtual AnyBatch unpacked(const at::Tensor& bytes) const = 0;
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
  bool at_last_step() const;
  std::int64_t epoch() const;
  std::int64_t batch() const;
  std::optional<std::int64_t> batches() const;
  std::optional<std::int64_t> rows() const;
  const LoaderOptions& options() const;
  void share(const LoaderShare& share);
  void set_even_batches(bool even);
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
[[noreturn]] void throw_no_copies();
// Page-locked, if there is CUDA and the tensor is in ordinary memory.
at::Tensor pinned(const at::Tensor& tensor);

}  // namespace detail

}  // namespace hasten
