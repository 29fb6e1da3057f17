// File: data/loader_impl.h (internal)
// The state of a loader (hasten/data/loader.h) and of its current pass. loader_passes.cpp starts,
// advances and ends passes, and computes their positions; loader_batches.cpp makes the batches of a
// pass; loader.cpp has the functions that the user calls.
//
// Thread rule: one thread, apart from the functions that make batches, which worker threads call.
#pragma once

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/batch_producer.h"
#include "data/dispatch.h"
#include "hasten/data/detail/loader_core.h"
#include "hasten/data/sampler.h"

namespace hasten::detail {

struct LoaderCore::Impl {
  std::unique_ptr<BatchSource> source;
  LoaderOptions options;
  LoaderSharding sharding;
  std::optional<std::int64_t> ordered_rows;  // rows of an epoch under options.order
  std::optional<BatchDispatcher> dispatch;   // set if rank 0 reads for all processes
  // True if each process reads its own shard of a stream, and whether that shard has ended in this
  // pass.
  bool reads_shard = false, shard_has_ended = false;
  // The rows of the dataset, as rank 0 broadcast them. Unset if they are unknown.
  std::optional<std::int64_t> broadcast_rows;
  // The number of steps that rank 0 reads ahead and all other ranks receive ahead.
  std::int64_t broadcast_prefetch = 0;

  std::optional<LoaderState> pending;  // start of the next pass, if the user has set it
  LoaderState pass_start;              // start of the current or last pass
  std::int64_t epoch = 0;              // epoch of that pass
  std::int64_t batches_returned = 0;   // its batches, including skipped ones and the current one
  std::int64_t rows_returned = 0;      // rows of all processes in these batches
  bool finished = false;               // its last batch has been returned

  std::int64_t pass = 0;  // number of the pass; detects iterators of earlier ones
  bool running = false;
  // True if the current pass, or between two passes the next one, is divided between virtual ranks.
  bool is_elastic = false;
  // For map datasets, one past the last batch number of the pass: in this process, and in any.
  std::int64_t own_end = 0, end = 0;
  EpochOrder order;
  // The rows of a process in a step whose rows are divided by cost.
  struct PartRows {
    std::vector<std::int64_t> rows;
    std::int64_t real = 0;  // the first ones, which are not repeated
  };
  // The rows of an optimizer step: element step * world() + rank has those of a process in a step.
  // The first thread that needs them divides them; until then, `parts` is empty.
  struct Division {
    std::mutex mutex;
    std::vector<PartRows> parts;
  };
  // The latest divisions of this pass with the numbers of their optimizer steps, counted from 0.
  std::mutex divisions_mutex;
  std::deque<std::pair<std::int64_t, std::shared_ptr<Division>>> divisions;
  std::unique_ptr<BatchProducer> reader;    // in rank 0, if it reads for all: the steps
  std::unique_ptr<BatchProducer> producer;  // the batches of this process
  BatchResult current;
  BatchResult ahead;  // the batch after it, if the end cannot be known otherwise

  bool stream() const { return source->is_stream(); }
  bool reads_ahead() const { return stream() || dispatch; }
  // The ranks that share a step: virtual ones if the pass is divided between them.
  std::int64_t world() const { return is_elastic ? sharding.elastic.ranks : sharding.group.size(); }
  std::int64_t rank() const { return sharding.group.rank(); }
  // The number of virtual ranks of this process.
  std::int64_t virtual_ranks() const { return sharding.elastic.ranks / sharding.group.size(); }
  // Call it before anything that depends on the kind of the next pass.
  void update_is_elastic() {
    if (!running) is_elastic = sharding.elastic.ranks > 0 && c10::GradMode::is_enabled();
  }
  // Rows of a batch of this process.
  std::int64_t own_rows() const {
    return sharding.configuration.split_batches ? options.batch_size / world() : options.batch_size;
  }
  // Rows of the batches of all processes together.
  std::int64_t step_rows() const { return own_rows() * world(); }
  // True if the last step is filled up with repeated rows.
  bool repeats_rows() const { return world() > 1 && sharding.configuration.even_batches; }
  std::int64_t steps_of(std::int64_t rows) const {
    return options.drop_last ? rows / step_rows() : (rows + step_rows() - 1) / step_rows();
  }
  // Rows of the epoch before a step of this pass.
  std::int64_t step_start(std::int64_t number) const {
    return pass_start.rows + (number - pass_start.batch) * step_rows();
  }
  // A process's rows in a step of `rows` rows, without repeated ones.
  std::int64_t real_rows(std::int64_t of_rank, std::int64_t rows) const {
    return std::clamp<std::int64_t>(rows - of_rank * own_rows(), 0, own_rows());
  }
  std::optional<std::int64_t> dataset_rows() const {
    if (reads_shard) return std::nullopt;  // the longest shard decides
    return dispatch ? broadcast_rows : source->rows();
  }
  std::optional<std::int64_t> rows_of_epoch() const {
    return ordered_rows && !dispatch ? ordered_rows : dataset_rows();
  }
  // Batches that this process gets of `rows` rows.
  std::int64_t own_batches_of(std::int64_t rows) const {
    const std::int64_t steps = steps_of(rows);
    if (options.rebalance) return steps;
    const std::int64_t last = std::min(rows - (steps - 1) * step_rows(), step_rows());
    return steps > 0 && !repeats_rows() && real_rows(rank(), last) == 0 ? steps - 1 : steps;
  }
  // True if each process reads the whole stream, and all step through it together.
  bool every_rank_reads_stream() const {
    return stream() && !dispatch && sharding.group.size() > 1 &&
           sharding.configuration.even_batches;
  }
  bool at_last_step() const { return reads_ahead() ? ahead.is_end() : batches_returned == end; }

  void check_not_empty() const;
  LoaderState resolved(LoaderState state) const;
  LoaderState next_start() const;
  LoaderState state_to_save(LoaderState state) const;
  LoaderState validated(LoaderState state) const;
  std::string description() const;
  void start(const LoaderState& from);
  void open();
  void start_order();
  std::unique_ptr<BatchProducer> own_producer();
  BatchResult make_elastic_batch(std::int64_t batch);
  std::unique_ptr<BatchProducer> reading_producer();
  std::unique_ptr<BatchProducer> sending_producer();
  std::unique_ptr<BatchProducer> receiving_producer();
  BatchContext context_of(std::int64_t number, std::int64_t of_rank) const;
  std::int64_t rows_of_step(std::int64_t number);
  std::vector<PartRows> divided_rows(std::int64_t window) const;
  std::shared_ptr<Division> division_of(std::int64_t window);
  PartRows rebalanced_rows(std::int64_t number, std::int64_t of_rank);
  BatchResult make_rebalanced(std::int64_t number, std::int64_t of_rank, std::int64_t rows_of_step);
  BatchResult make_own_shard_batch(std::int64_t number);
  BatchResult make_part(std::int64_t number, std::int64_t of_rank, std::int64_t rows_of_step);
  std::span<const std::int64_t> rows_of(std::int64_t first, std::int64_t real, std::int64_t count,
                                        std::vector<std::int64_t>& scratch) const;
  void advance_to_next();
  BatchResult next_ahead(std::int64_t number);
  void stop();
  void require_running(std::int64_t of_pass) const;
};

}  // namespace hasten::detail
