// Makes the batches of a pass: the rows of each batch, and the producers that make batches ahead.
#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "data/batch_error.h"
#include "data/loader_impl.h"

namespace hasten::detail {
namespace {

// Call it in a catch block: returns the current exception with the batch in front of its text.
std::exception_ptr error_with_batch(const BatchContext& context) {
  try {
    rethrow_with_batch(context, {});
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

// Returns the rows of a batch; those beyond the end of the epoch are repeated from its start.
std::span<const std::int64_t> LoaderCore::Impl::rows_of(std::int64_t first, std::int64_t real,
                                                        std::int64_t count,
                                                        std::vector<std::int64_t>& scratch) const {
  if (real == count) return order.slice(first, real, scratch);
  std::vector<std::int64_t> rows, one;
  for (std::int64_t i = 0; i < count; ++i)
    rows.push_back(order.slice((first + i) % order.size(), 1, one).front());
  scratch = std::move(rows);
  return scratch;
}

// A batch is identified by its rows: its context does not depend on the number of processes as long
// as own_rows() is the same.
BatchContext LoaderCore::Impl::context_of(std::int64_t number, std::int64_t of_rank) const {
  return {.seed = options.seed,
          .epoch = epoch,
          .batch = (step_start(number) + of_rank * own_rows()) / own_rows()};
}

// Returns the number of rows of a step, 0 at the end. Reads them if the source is a stream.
std::int64_t LoaderCore::Impl::rows_of_step(std::int64_t number) {
  if (!stream()) return std::min(order.size() - step_start(number), step_rows());
  try {
    const std::int64_t rows = source->read(step_rows());
    return options.drop_last && rows < step_rows() ? 0 : rows;
  } catch (...) {
    rethrow_with_batch(context_of(number, 0), {});
  }
}

// Divides the rows of an optimizer step by cost. The first step of this pass is the first of an
// optimizer step.
std::vector<LoaderCore::Impl::PartRows> LoaderCore::Impl::divided_rows(std::int64_t window) const {
  const std::int64_t first = step_start(pass_start.batch + window * options.rebalance->steps),
                     steps = std::min(options.rebalance->steps, steps_of(order.size() - first)),
                     count = std::min(steps * step_rows(), order.size() - first);
  std::vector<std::int64_t> scratch;
  const auto in_order = order.slice(first, count, scratch);
  std::vector<std::int64_t> rows(in_order.begin(), in_order.end());
  // The positions of the rows, which distinguish a repeated row from its first occurrence.
  std::vector<std::int64_t> places(static_cast<std::size_t>(std::max(count, steps * world()))),
      lengths;
  std::iota(places.begin(), places.end(), 0);
  for (std::int64_t i = 0; static_cast<std::int64_t>(rows.size()) < steps * world(); ++i)
    rows.push_back(order.slice(i % order.size(), 1, scratch).front());
  for (const std::int64_t row : rows)
    lengths.push_back(options.rebalance->lengths[static_cast<std::size_t>(row)]);
  std::vector<PartRows> parts;
  for (std::vector<std::int64_t>& batch : rebalanced_batches(places, lengths, world(), steps)) {
    const auto repeated = std::stable_partition(batch.begin(), batch.end(),
                                                [&](std::int64_t place) { return place < count; });
    PartRows& part = parts.emplace_back(PartRows{.rows = {}, .real = repeated - batch.begin()});
    for (const std::int64_t place : batch)
      part.rows.push_back(rows[static_cast<std::size_t>(place)]);
  }
  return parts;
}

// Worker threads make batches that follow each other, so each needs at most one division at once. A
// division that is dropped too early is only computed again.
std::shared_ptr<LoaderCore::Impl::Division> LoaderCore::Impl::division_of(std::int64_t window) {
  const std::scoped_lock lock(divisions_mutex);
  for (const auto& [of_window, division] : divisions) {
    if (of_window == window) return division;
  }
  divisions.emplace_back(window, std::make_shared<Division>());
  const auto maximum = static_cast<std::size_t>(std::max<std::int64_t>(1, options.num_workers));
  if (divisions.size() > maximum) divisions.pop_front();
  return divisions.back().second;
}

// Returns a process's rows of a step if the rows of an optimizer step are divided by cost.
LoaderCore::Impl::PartRows LoaderCore::Impl::rebalanced_rows(std::int64_t number,
                                                             std::int64_t of_rank) {
  const std::int64_t since = number - pass_start.batch, steps = options.rebalance->steps;
  const std::shared_ptr<Division> division = division_of(since / steps);
  const std::scoped_lock lock(division->mutex);
  if (division->parts.empty()) division->parts = divided_rows(since / steps);
  return division->parts[static_cast<std::size_t>(since % steps * world() + of_rank)];
}

BatchResult LoaderCore::Impl::make_rebalanced(std::int64_t number, std::int64_t of_rank,
                                              std::int64_t rows_of_step) {
  const PartRows rows = rebalanced_rows(number, of_rank);
  BatchResult part{
      .step_rows = rows_of_step,
      .info = {.rows = static_cast<std::int64_t>(rows.rows.size()), .real_rows = rows.real}};
  part.info.first_rows = named_rows(rows.rows);
  const BatchContext context = context_of(number, of_rank);
  try {
    part.batch = source->make(rows.rows, context);
  } catch (...) {
    rethrow_with_batch(context, rows.rows);
  }
  return part;
}

// Makes a process's part of a step. It runs on worker threads, for map datasets on several at once,
// so it reads only members that a running pass does not change, and divisions.
BatchResult LoaderCore::Impl::make_part(std::int64_t number, std::int64_t of_rank,
                                        std::int64_t rows_of_step) {
  if (options.rebalance && rows_of_step > 0) return make_rebalanced(number, of_rank, rows_of_step);
  const std::int64_t real = real_rows(of_rank, rows_of_step),
                     count = repeats_rows() ? own_rows() : real;
  BatchResult part{.step_rows = rows_of_step, .info = {.rows = count, .real_rows = real}};
  if (count == 0 || rows_of_step == 0) return part;
  const BatchContext context = context_of(number, of_rank);
  const std::int64_t first = of_rank * own_rows();
  std::vector<std::int64_t> scratch;
  std::span<const std::int64_t> rows;
  try {
    if (stream()) {
      part.batch = source->make_from_read_rows(first, count, step_start(number), context);
    } else {
      rows = rows_of(step_start(number) + first, real, count, scratch);
      part.info.first_rows = named_rows(rows);
      part.batch = source->make(rows, context);
    }
  } catch (...) {
    rethrow_with_batch(context, rows);
  }
  return part;
}

std::unique_ptr<BatchProducer> LoaderCore::Impl::own_producer() {
  open();
  const std::int64_t threads =
      stream() ? std::min<std::int64_t>(options.num_workers, 1) : options.num_workers;
  if (is_elastic) {
    return make_producer([this](std::int64_t batch) { return make_elastic_batch(batch); }, 0,
                         (end - pass_start.batch) * virtual_ranks(), threads,
                         options.num_workers * options.prefetch_factor);
  }
  const auto make = [this](std::int64_t number) {
    return reads_shard ? make_own_shard_batch(number)
                       : make_part(number, rank(), rows_of_step(number));
  };
  return make_producer(make, pass_start.batch, own_end, threads,
                       options.num_workers * options.prefetch_factor);
}

// Makes a batch of this process's shard of a stream. After the end of the shard, batches repeat
// rows from its start, which do not count, because the processes end the pass together. step_rows
// is the number of rows of a full step until the processes have agreed on it. An error of a batch
// without rows of its own is returned, because it does not count if this step is the end.
BatchResult LoaderCore::Impl::make_own_shard_batch(std::int64_t number) {
  const BatchContext context = context_of(number, rank());
  try {
    const std::int64_t real = source->read(shard_has_ended ? 0 : own_rows());
    shard_has_ended = real < own_rows();
    BatchResult part{.step_rows = step_rows(), .info = {.rows = own_rows(), .real_rows = real}};
    if (options.drop_last && shard_has_ended) return part;  // this step is left out
    const std::int64_t first = step_start(number) + rank() * own_rows();
    try {
      part.batch = source->make_from_read_rows(0, own_rows(), first, context);
    } catch (...) {
      if (real > 0) throw;
      part.error = error_with_batch(context);
    }
    return part;
  } catch (...) {
    rethrow_with_batch(context, {});
  }
}

// Makes a batch of this process in a pass that is divided between virtual ranks. For each optimizer
// step the batches of its first virtual rank come first, then those of the next.
BatchResult LoaderCore::Impl::make_elastic_batch(std::int64_t batch) {
  const std::int64_t in_full = sharding.elastic.steps * virtual_ranks(), position = batch % in_full,
                     first = pass_start.batch + batch / in_full * sharding.elastic.steps,
                     steps = std::min(sharding.elastic.steps, end - first),
                     index = position / steps, number = first + position % steps,
                     of_rank = rank() * virtual_ranks() + index;
  BatchResult part = make_part(number, of_rank, rows_of_step(number));
  part.info.elastic = ElasticBatchInfo{.virtual_rank = of_rank,
                                       .step = number,
                                       .position = position,
                                       .begins_rank = position % steps == 0,
                                       .ends_rank = position % steps == steps - 1,
                                       .ends_window = position == steps * virtual_ranks() - 1,
                                       .key = context_of(number, of_rank).key()};
  return part;
}

// On rank 0: reads the steps of all processes.
std::unique_ptr<BatchProducer> LoaderCore::Impl::reading_producer() {
  open();
  const auto make = [this](std::int64_t number) {
    const std::int64_t rows = rows_of_step(number);
    if (rows == 0) return BatchResult{};
    auto parts = std::make_shared<std::vector<BatchResult>>();
    for (std::int64_t each = 0; each < world(); ++each)
      parts->push_back(make_part(number, each, rows));
    return BatchResult{.batch = std::move(parts), .step_rows = rows};
  };
  const std::int64_t threads = stream() ? 0 : options.num_workers;
  return make_producer(make, pass_start.batch, end, threads,
                       options.num_workers * options.prefetch_factor);
}

std::unique_ptr<BatchProducer> LoaderCore::Impl::sending_producer() {
  const auto make = [this](std::int64_t number) {
    const BatchPosition position{pass, epoch, number};
    BatchResult step;
    try {
      if (!reader) reader = reading_producer();
      step = reader->next();
    } catch (...) {
      step = {.error = std::current_exception()};
    }
    if (step.error || step.is_end()) {
      dispatch->send_to_all(position, step);
      return step;
    }
    auto& parts = *static_cast<std::vector<BatchResult>*>(step.batch.get());
    dispatch->send(position, parts);
    return std::move(parts.front());
  };
  return make_draining_producer(make, pass_start.batch, broadcast_prefetch);
}

std::unique_ptr<BatchProducer> LoaderCore::Impl::receiving_producer() {
  return make_draining_producer(
      [this](std::int64_t number) {
        return dispatch->receive({pass, epoch, number});
      },
      pass_start.batch, broadcast_prefetch);
}

}  // namespace hasten::detail
