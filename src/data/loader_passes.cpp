// Starts, advances and ends the passes of a loader, and computes their positions.
#include <algorithm>
#include <string>
#include <utility>

#include "data/loader_checks.h"
#include "data/loader_impl.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {

void LoaderCore::Impl::check_not_empty() const {
  const auto rows = rows_of_epoch();
  if (!rows || steps_of(*rows) > 0) return;
  if (*rows <= 0) throw DataError("data.empty", {.what = "the dataset has no rows"});
  throw ConfigError("data.option",
                    {.what = "drop_last leaves no batch",
                     .got = str(*rows, " rows"),
                     .expected = str("at least ", step_rows(),
                                     world() == 1 ? ", batch_size" : ", one batch per process"),
                     .hint = "set drop_last = false, or a smaller batch_size"});
}

// Makes `batch` and `rows` agree. If `rows` is known (not -1), it decides.
LoaderState LoaderCore::Impl::resolved(LoaderState state) const {
  if (state.rows < 0) {
    state.rows = state.batch * step_rows();
  } else {
    state.batch = state.rows / step_rows();
  }
  return state;
}

// Parts of a stream have different lengths, so only the number of batches is known for a position
// in them.
LoaderState LoaderCore::Impl::state_to_save(LoaderState state) const {
  if (reads_shard) state.rows = kUnknownShardRows;
  return state;
}

// Returns the start that the user has set. Otherwise returns the next epoch if the pass has
// finished, or else the start of the current epoch.
LoaderState LoaderCore::Impl::next_start() const {
  if (pending) return resolved(*pending);
  return {.seed = options.seed, .epoch = finished ? epoch + 1 : epoch, .batch = 0, .rows = 0};
}

// Throws for a position outside the dataset. Returns the start of the next epoch for the end of an
// epoch, and any other position unchanged.
LoaderState LoaderCore::Impl::validated(LoaderState state) const {
  const auto rows = stream() ? std::nullopt : rows_of_epoch();
  const std::int64_t steps = rows ? steps_of(*rows) : 0;
  const bool by_rows = state.rows >= 0;
  const bool past_end = rows && (by_rows ? state.rows > *rows : state.batch > steps);
  if (state.epoch < 0 || state.batch < 0 || state.rows < -1 || past_end) {
    throw DataError("data.state",
                    {.what = "the position to resume from",
                     .got = str(by_rows ? str("row ", state.rows) : str("batch ", state.batch),
                                " of epoch ", state.epoch),
                     .expected = !rows     ? "numbers from 0"
                                 : by_rows ? str("a row from 0 to ", *rows)
                                           : str("a batch from 0 to ", steps),
                     .hint = "use the dataset and batch_size that the state was saved with"});
  }
  check_same_sharding(state, reads_shard);
  const bool at_end = rows && (by_rows ? steps_of(*rows - state.rows) == 0 : state.batch == steps);
  if (at_end) return {.seed = state.seed, .epoch = state.epoch + 1, .batch = 0, .rows = 0};
  return state;
}

void LoaderCore::Impl::start_order() {
  order = EpochOrder(*source->rows(),
                     {.shuffle = options.shuffle, .seed = options.seed, .custom = options.order},
                     epoch);
  if (ordered_rows && order.size() != *ordered_rows) {
    throw UsageError("data.order", {.what = "the order of epoch " + std::to_string(epoch),
                                    .got = str(order.size(), " rows"),
                                    .expected = str(*ordered_rows, ", as in epoch 0")});
  }
}

// Moves the source to the start of the pass. In a dispatched loader rank 0's reading thread calls
// it, so that exceptions reach all processes.
void LoaderCore::Impl::open() {
  if (stream()) {
    const std::int64_t kept = reads_shard ? own_rows() : step_rows();
    source->rewind(epoch, repeats_rows() && !options.drop_last ? kept : 0);
    shard_has_ended = false;
    const std::int64_t before = reads_shard ? pass_start.batch * own_rows() : pass_start.rows;
    if (before > 0) source->skip(before);
    own_end = end = kUnknownEnd;
  } else {
    if (!dispatch) check_not_empty();
    start_order();
    end = pass_start.batch + steps_of(order.size() - pass_start.rows);
    own_end = pass_start.batch + own_batches_of(order.size() - pass_start.rows);
  }
}

void LoaderCore::Impl::start(const LoaderState& from) {
  stop();
  ++pass;
  options.seed = from.seed;
  epoch = from.epoch;
  pass_start = from;
  batches_returned = from.batch;
  rows_returned = from.rows;
  finished = false;
  pending.reset();
  if (reads_shard && !sharding.configuration.even_batches) throw_uneven_shards();
  if (dispatch) {
    producer = rank() == 0 ? sending_producer() : receiving_producer();
  } else if (!every_rank_reads_stream()) {
    producer = own_producer();
  }
  running = true;
  if (reads_ahead()) {
    ahead = next_ahead(batches_returned);
    if (ahead.is_end()) {
      stop();
      if (from.rows == 0) throw DataError("data.empty", {.what = "the stream returned no batch"});
      throw DataError("data.state", {.what = str("batch ", from.batch, " of epoch ", from.epoch),
                                     .got = "the end of the stream",
                                     .expected = "the batch at which the pass continues",
                                     .hint = "use the stream that the state was saved with"});
    }
    finished = !ahead.batch && !ahead.error;
  } else {
    finished = batches_returned == own_end;
  }
  advance_to_next();
}

// Returns the batch of this number. Processes that read the same stream agree on its rows, and on
// an error when it is opened: otherwise some would wait for the others after their last batch.
BatchResult LoaderCore::Impl::next_ahead(std::int64_t number) {
  if (!every_rank_reads_stream()) return producer->next();
  const std::string name = str("batch ", number, " of epoch ", epoch);
  BatchResult next;
  try {
    if (!producer) producer = own_producer();
    next = producer->next();
  } catch (...) {
    next = {.error = std::current_exception()};
  }
  if (!reads_shard) {
    check_same_step(next, name, sharding.group);
    return next;
  }
  agree_on_step(next, name, sharding.group);
  const bool is_full = next.step_rows == step_rows();
  if (!next.error && options.drop_last && !is_full) return {};
  return next;
}

// Makes the next batch the current one; there is none at the end of the pass.
void LoaderCore::Impl::advance_to_next() {
  current = {};
  if (finished) return;
  BatchResult next = reads_ahead() ? std::exchange(ahead, {}) : producer->next();
  if (next.error) {
    stop();
    std::rethrow_exception(next.error);
  }
  if (reads_ahead()) ahead = next_ahead(batches_returned + 1);
  if (!is_elastic) {
    ++batches_returned;
    rows_returned += reads_shard ? step_rows() : next.step_rows;
  } else if (next.info.elastic->ends_window) {  // until then, the position is the window's start
    batches_returned = next.info.elastic->step + 1;
    rows_returned = std::min(step_start(batches_returned), order.size());
  }
  finished = reads_ahead() ? !ahead.batch && !ahead.error : batches_returned == own_end;
  current = std::move(next);
  current.info.is_last = current.info.may_be_padded = current.batch && at_last_step();
  if (is_elastic) current.info.may_be_padded = current.info.elastic->step == end - 1;
  if (reads_shard && current.batch && current.step_rows < step_rows())
    current.info.may_be_padded = true;
  // The processes have different numbers of rows in every step.
  if (options.rebalance && current.batch && world() > 1) current.info.may_be_padded = true;
}

void LoaderCore::Impl::stop() {
  producer.reset();
  reader.reset();
  divisions.clear();
  current = {};
  ahead = {};
  running = false;
}

void LoaderCore::Impl::require_running(std::int64_t of_pass) const {
  if (running && of_pass == pass) return;
  throw UsageError("data.pass", {.what = "this pass over the loader has ended",
                                 .hint = "use a second loader for a second loop at the same time: "
                                         "a loader has one pass at a time"});
}

}  // namespace hasten::detail
