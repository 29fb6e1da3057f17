#include "hasten/data/loader.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "data/batch_error.h"
#include "data/batch_producer.h"
#include "data/dispatch.h"
#include "data/loader_checks.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {

struct LoaderCore::Impl {
  std::unique_ptr<BatchSource> source;
  LoaderOptions options;
  LoaderShare share;
  std::optional<std::int64_t> ordered_rows;  // rows of an epoch under options.order
  std::optional<Dispatch> dispatch;          // set if rank 0 reads for all processes
  // True if each process reads its own part of a stream, and whether that part has ended in this pass.
  bool reads_part = false, part_has_ended = false;
  // The rows of the dataset, as rank 0 broadcast them. Unset: unknown.
  std::optional<std::int64_t> broadcast_rows;
  // The steps that rank 0 reads ahead, and that all others receive ahead.
  std::int64_t broadcast_prefetch = 0;

  std::optional<LoaderState> pending;  // start of the next pass, if the user has set it
  LoaderState pass_start;              // start of the current or last pass
  std::int64_t epoch = 0;              // epoch of that pass
  std::int64_t batches_returned = 0;   // its batches, including skipped ones and the current one
  std::int64_t rows_returned = 0;      // rows of all processes in these batches
  bool finished = false;               // its last batch has been handed out

  std::int64_t pass = 0;  // number of the pass; detects iterators of earlier ones
  bool running = false;
  // Whether the pass, or between two passes the next one, is divided between virtual ranks.
  bool is_elastic = false;
  // For map datasets, one past the last batch number of the pass: in this process, and in any.
  std::int64_t own_end = 0, end = 0;
  EpochOrder order;
  std::unique_ptr<BatchProducer> reader;    // in rank 0, if it reads for all: the steps
  std::unique_ptr<BatchProducer> producer;  // the batches of this process
  BatchResult current;
  BatchResult ahead;  // the batch after it, if the end cannot be known otherwise

  bool stream() const { return source->is_stream(); }
  bool reads_ahead() const { return stream() || dispatch; }
  // The ranks that share a step: virtual ones if the pass is divided between them.
  std::int64_t world() const { return is_elastic ? share.elastic.ranks : share.group.size(); }
  std::int64_t rank() const { return share.group.rank(); }
  // The virtual ranks of this process.
  std::int64_t turns() const { return share.elastic.ranks / share.group.size(); }
  // Call it before anything that depends on the kind of the next pass.
  void choose_kind() {
    if (!running) is_elastic = share.elastic.ranks > 0 && c10::GradMode::is_enabled();
  }
  // Rows of a batch of this process.
  std::int64_t own_rows() const {
    return share.configuration.split_batches ? options.batch_size / world() : options.batch_size;
  }
  // Rows of the batches of all processes together.
  std::int64_t step_rows() const { return own_rows() * world(); }
  // True if the last step is filled up with repeated rows.
  bool repeats_rows() const { return world() > 1 && share.configuration.even_batches; }
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
    if (reads_part) return std::nullopt;  // the longest part decides
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
  bool all_read_stream() const {
    return stream() && !dispatch && share.group.size() > 1 && share.configuration.even_batches;
  }
  bool at_last_step() const { return reads_ahead() ? ahead.is_end() : batches_returned == end; }

  void check_not_empty() const;
  LoaderState resolved(LoaderState state) const;
  LoaderState next_start() const;
  LoaderState saved(LoaderState state) const;
  LoaderState checked(LoaderState state) const;
  std::string description() const;
  void start(const LoaderState& from);
  void open();
  void start_order();
  std::unique_ptr<BatchProducer> own_producer();
  BatchResult make_turn(std::int64_t batch);
  std::unique_ptr<BatchProducer> reading_producer();
  std::unique_ptr<BatchProducer> sending_producer();
  std::unique_ptr<BatchProducer> receiving_producer();
  BatchContext context_of(std::int64_t number, std::int64_t of_rank) const;
  std::int64_t rows_of_step(std::int64_t number);
  struct PartRows {
    std::vector<std::int64_t> rows;
    std::int64_t real = 0;  // the first ones, which are not repeated
  };
  PartRows rebalanced_rows(std::int64_t number, std::int64_t of_rank) const;
  BatchResult make_rebalanced(std::int64_t number, std::int64_t of_rank, std::int64_t rows_of_step);
  BatchResult make_own_part(std::int64_t number);
  BatchResult make_part(std::int64_t number, std::int64_t of_rank, std::int64_t rows_of_step);
  std::span<const std::int64_t> rows_of(std::int64_t first, std::int64_t real, std::int64_t count,
                                        std::vector<std::int64_t>& scratch) const;
  void advance_to_next();
  BatchResult next_ahead(std::int64_t number);
  void stop();
  void require_running(std::int64_t of_pass) const;
};

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

// Makes `batch` and `rows` agree; `rows` decides if it is known (not -1).
LoaderState LoaderCore::Impl::resolved(LoaderState state) const {
  if (state.rows < 0) {
    state.rows = state.batch * step_rows();
  } else {
    state.batch = state.rows / step_rows();
  }
  return state;
}

// Parts of a stream have different lengths, so only the number of batches is known of a position in
// them.
LoaderState LoaderCore::Impl::saved(LoaderState state) const {
  if (reads_part) state.rows = kUnknownRowsOfParts;
  return state;
}

// Unless the user has set it: the next epoch after a finished pass, else the current epoch again.
LoaderState LoaderCore::Impl::next_start() const {
  if (pending) return resolved(*pending);
  return {.seed = options.seed, .epoch = finished ? epoch + 1 : epoch, .batch = 0, .rows = 0};
}

// Refuses a place outside the dataset; the end of an epoch becomes the start of the next.
LoaderState LoaderCore::Impl::checked(LoaderState state) const {
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
  check_reads_alike(state, reads_part);
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

// Returns a process's rows of a step if the rows of an optimizer step are divided by cost. The steps
// of this pass begin with an optimizer step.
LoaderCore::Impl::PartRows LoaderCore::Impl::rebalanced_rows(std::int64_t number,
                                                             std::int64_t of_rank) const {
  const std::int64_t since = number - pass_start.batch, window = since / options.rebalance->steps,
                     first = step_start(pass_start.batch + window * options.rebalance->steps),
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
  std::vector<std::int64_t> batch = rebalanced_batches(
      places, lengths, world(),
      steps)[static_cast<std::size_t>(since % options.rebalance->steps * world() + of_rank)];
  const auto repeated = std::stable_partition(batch.begin(), batch.end(),
                                              [&](std::int64_t place) { return place < count; });
  PartRows part{.real = repeated - batch.begin()};
  for (const std::int64_t place : batch) part.rows.push_back(rows[static_cast<std::size_t>(place)]);
  return part;
}

BatchResult LoaderCore::Impl::make_rebalanced(std::int64_t number, std::int64_t of_rank,
                                              std::int64_t rows_of_step) {
  const PartRows rows = rebalanced_rows(number, of_rank);
  BatchResult part{
      .step_rows = rows_of_step,
      .info = {.rows = static_cast<std::int64_t>(rows.rows.size()), .real_rows = rows.real}};
  const BatchContext context = context_of(number, of_rank);
  try {
    part.batch = source->make(rows.rows, context);
  } catch (...) {
    rethrow_with_batch(context, rows.rows);
  }
  return part;
}

// Makes a process's part of a step, on worker threads, for map datasets on several at once: it
// reads only members that a running pass does not change.
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
      part.batch = source->make_from_read(first, count, step_start(number), context);
    } else {
      rows = rows_of(step_start(number) + first, real, count, scratch);
      part.batch = source->make(rows, context);
    }
  } catch (...) {
    rethrow_with_batch(context, rows);
  }
  return part;
}

// Moves the source to the start of the pass. In a dispatched loader rank 0's reading thread calls
// it, so that exceptions reach all processes.
void LoaderCore::Impl::open() {
  if (stream()) {
    const std::int64_t kept = reads_part ? own_rows() : step_rows();
    source->rewind(epoch, repeats_rows() && !options.drop_last ? kept : 0);
    part_has_ended = false;
    const std::int64_t before = reads_part ? pass_start.batch * own_rows() : pass_start.rows;
    if (before > 0) source->skip(before);
    own_end = end = kUnknownEnd;
  } else {
    if (!dispatch) check_not_empty();
    start_order();
    end = pass_start.batch + steps_of(order.size() - pass_start.rows);
    own_end = pass_start.batch + own_batches_of(order.size() - pass_start.rows);
  }
}

std::unique_ptr<BatchProducer> LoaderCore::Impl::own_producer() {
  open();
  const std::int64_t threads =
      stream() ? std::min<std::int64_t>(options.num_workers, 1) : options.num_workers;
  if (is_elastic) {
    return make_producer([this](std::int64_t batch) { return make_turn(batch); }, 0,
                         (end - pass_start.batch) * turns(), threads,
                         options.num_workers * options.prefetch_factor);
  }
  const auto make = [this](std::int64_t number) {
    return reads_part ? make_own_part(number) : make_part(number, rank(), rows_of_step(number));
  };
  return make_producer(make, pass_start.batch, own_end, threads,
                       options.num_workers * options.prefetch_factor);
}

// Makes a batch of this process's part of a stream. When the part has ended, rows from its start follow,
// which do not count: the processes end the pass together. step_rows is that of a full step until they
// have agreed on it.
BatchResult LoaderCore::Impl::make_own_part(std::int64_t number) {
  const BatchContext context = context_of(number, rank());
  try {
    const std::int64_t real = source->read(part_has_ended ? 0 : own_rows());
    part_has_ended = real < own_rows();
    BatchResult part{.step_rows = step_rows(), .info = {.rows = own_rows(), .real_rows = real}};
    if (options.drop_last && part_has_ended) return part;  // this step is left out
    const std::int64_t first = step_start(number) + rank() * own_rows();
    part.batch = source->make_from_read(0, own_rows(), first, context);
    return part;
  } catch (...) {
    rethrow_with_batch(context, {});
  }
}

// Makes a batch of this process in a pass that is divided between virtual ranks: for each optimizer
// step the batches of its first virtual rank, then those of the next.
BatchResult LoaderCore::Impl::make_turn(std::int64_t batch) {
  const std::int64_t in_full = share.elastic.steps * turns(), position = batch % in_full,
                     first = pass_start.batch + batch / in_full * share.elastic.steps,
                     steps = std::min(share.elastic.steps, end - first), turn = position / steps,
                     number = first + position % steps, of_rank = rank() * turns() + turn;
  BatchResult part = make_part(number, of_rank, rows_of_step(number));
  part.info.elastic = ElasticPlace{.virtual_rank = of_rank,
                                   .step = number,
                                   .position = position,
                                   .begins_turn = position % steps == 0,
                                   .ends_turn = position % steps == steps - 1,
                                   .ends_window = position == steps * turns() - 1,
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
  if (reads_part && !share.configuration.even_batches) throw_uneven_parts();
  if (dispatch) {
    producer = rank() == 0 ? sending_producer() : receiving_producer();
  } else if (!all_read_stream()) {
    producer = own_producer();
  }
  running = true;
  if (reads_ahead()) {
    ahead = next_ahead(batches_returned);
    if (ahead.is_end()) {
      stop();
      if (from.rows == 0) throw DataError("data.empty", {.what = "the stream returned no batch"});
      throw DataError("data.state", {.what = str("the stream ended before batch ", from.batch,
                                                 " of epoch ", from.epoch),
                                     .hint = "use the stream that the state was saved with"});
    }
    finished = !ahead.batch && !ahead.error;
  } else {
    finished = batches_returned == own_end;
  }
  advance_to_next();
}

// Returns the batch of this number. Processes that read the same stream agree on its rows, and on an
// error when it is opened: otherwise some would wait for the others after their last batch.
BatchResult LoaderCore::Impl::next_ahead(std::int64_t number) {
  if (!all_read_stream()) return producer->next();
  const std::string name = str("batch ", number, " of epoch ", epoch);
  BatchResult next;
  try {
    if (!producer) producer = own_producer();
    next = producer->next();
  } catch (...) {
    next = {.error = std::current_exception()};
  }
  if (!reads_part) {
    check_same_step(next, name, share.group);
    return next;
  }
  agree_on_step(next, name, share.group);
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
    rows_returned += reads_part ? step_rows() : next.step_rows;
  } else if (next.info.elastic->ends_window) {  // until then, the position is the window's start
    batches_returned = next.info.elastic->step + 1;
    rows_returned = std::min(step_start(batches_returned), order.size());
  }
  finished = reads_ahead() ? !ahead.batch && !ahead.error : batches_returned == own_end;
  current = std::move(next);
  current.info.is_last = current.info.may_be_padded = current.batch && at_last_step();
  if (is_elastic) current.info.may_be_padded = current.info.elastic->step == end - 1;
  if (reads_part && current.batch && current.step_rows < step_rows())
    current.info.may_be_padded = true;
}

void LoaderCore::Impl::stop() {
  producer.reset();
  reader.reset();
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

// Describes the properties that must be equal in all processes.
std::string LoaderCore::Impl::description() const {
  const auto flag = [](bool is, const char* name) { return is ? str(", ", name) : std::string(); };
  if (dispatch || share.configuration.dispatch_batches.value_or(stream())) {
    return str("a loader that rank 0 reads for all, batch_size ", options.batch_size);
  }
  if (source->is_shardable() && !share.configuration.split_batches)
    return str("a part of a stream, batch_size ", options.batch_size, ", seed ", options.seed,
               flag(options.drop_last, "drop_last"));
  const auto rows = source->rows();
  return str(stream() ? "a stream" : "a loader", rows ? str(" of ", *rows, " rows") : "",
             ", batch_size ", options.batch_size, ", seed ", options.seed,
             flag(options.shuffle, "shuffle"), flag(options.drop_last, "drop_last"));
}

LoaderCore::LoaderCore(std::unique_ptr<BatchSource> source, LoaderOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->source = std::move(source);
  impl_->options = std::move(options);
  check_options(impl_->options, impl_->stream());
  if (impl_->options.order) {
    const std::int64_t rows = *impl_->source->rows();
    impl_->ordered_rows =
        static_cast<std::int64_t>(impl_->options.order(rows, impl_->options.seed, 0).size());
  }
  if (impl_->options.rebalance) check_lengths(*impl_->options.rebalance, *impl_->source->rows());
  impl_->check_not_empty();
}

LoaderCore::~LoaderCore() { impl_->stop(); }

std::int64_t LoaderCore::start_pass() {
  impl_->stop();
  impl_->choose_kind();
  impl_->start(impl_->next_start());
  return impl_->pass;
}

void LoaderCore::end_pass(std::int64_t pass) {
  if (pass == impl_->pass) impl_->stop();
}

void LoaderCore::advance(std::int64_t pass) {
  impl_->require_running(pass);
  impl_->advance_to_next();
}

void* LoaderCore::current(std::int64_t pass) const {
  impl_->require_running(pass);
  return impl_->current.batch.get();
}

const BatchInfo& LoaderCore::info(std::int64_t pass) const {
  impl_->require_running(pass);
  return impl_->current.info;
}

bool LoaderCore::done(std::int64_t pass) const {
  impl_->require_running(pass);
  return impl_->current.batch == nullptr;
}

bool LoaderCore::is_last() const { return impl_->current.batch && impl_->finished; }
std::int64_t LoaderCore::epoch() const {
  return impl_->current.batch ? impl_->epoch : impl_->next_start().epoch;
}
std::int64_t LoaderCore::batch() const {
  const Impl& own = *impl_;
  if (own.current.info.elastic) return own.current.info.elastic->step;
  return own.current.batch ? own.batches_returned - 1 : own.next_start().batch;
}
std::optional<std::int64_t> LoaderCore::batches() const {
  impl_->choose_kind();
  const auto rows = impl_->rows_of_epoch();
  if (!rows) return std::nullopt;
  return impl_->own_batches_of(*rows) * (impl_->is_elastic ? impl_->turns() : 1);
}
std::optional<std::int64_t> LoaderCore::rows() const { return impl_->dataset_rows(); }
bool LoaderCore::reads_part() const { return impl_->reads_part; }
const LoaderOptions& LoaderCore::options() const { return impl_->options; }

// The processes compare what may differ between them before they check what is the same in all of
// them, so either all throw or none does.
void LoaderCore::share(const LoaderShare& share) {
  if (share.group.size() == 1 && share.elastic.ranks == 0) return;
  Impl& own = *impl_;
  const bool again = own.share.group.size() > 1 || own.share.elastic.ranks > 0;
  if (!again) own.share.configuration = share.configuration;
  check_same_loader(own.description() + (again ? ", already prepared" : ""),
                    "prepare() the same loaders of the same data in the same order in every "
                    "process; each process then reads its part",
                    share.group);
  if (again) {
    throw ConfigError("data.share",
                      {.what = "a loader is prepared twice", .hint = "prepare() it once"});
  }
  check_divisible(own.options, share);
  if (share.elastic.ranks > 0) check_elastic(own.stream());
  const bool dispatch = share.configuration.dispatch_batches.value_or(own.stream());
  if (dispatch) check_packable(*own.source);
  own.stop();
  own.share = share;
  own.choose_kind();
  if (dispatch) {
    const std::int64_t rows = own.rows_of_epoch().value_or(-1);
    const std::int64_t ahead =
        std::max<std::int64_t>(own.options.num_workers, 1) * own.options.prefetch_factor;
    const at::Tensor from_rank_0 = share.group.broadcast(at::tensor({rows, ahead}, at::kLong));
    const auto* const numbers = from_rank_0.const_data_ptr<std::int64_t>();
    own.broadcast_rows = numbers[0] < 0 ? std::nullopt : std::optional(numbers[0]);
    own.broadcast_prefetch = numbers[1];
    own.dispatch.emplace(
        share.group,
        [&source = *own.source](const AnyBatch& batch) { return source.to_bytes(batch); },
        [&source = *own.source](const at::Tensor& bytes) { return source.from_bytes(bytes); });
  }
  own.reads_part = !dispatch && share.group.size() > 1 && own.source->is_shardable() &&
                   !share.configuration.split_batches;
  if (own.reads_part) own.source->shard(share.group.size(), share.group.rank());
  own.check_not_empty();
  if (own.pending) own.pending = own.checked(*own.pending);
}

void LoaderCore::set_even_batches(bool even) {
  if (impl_->share.configuration.even_batches == even) return;
  impl_->stop();
  impl_->share.configuration.even_batches = even;
}

LoaderState LoaderCore::state() const {
  impl_->choose_kind();
  const Impl& own = *impl_;
  if (own.pending) return own.saved(own.resolved(*own.pending));
  // If other processes have one more batch, the epoch lasts until the pass ends here.
  if (own.finished && (!own.running || own.at_last_step()))
    return own.saved({.seed = own.options.seed, .epoch = own.epoch + 1, .batch = 0, .rows = 0});
  return own.saved({.seed = own.options.seed,
                    .epoch = own.epoch,
                    .batch = own.batches_returned,
                    .rows = own.rows_returned});
}

void LoaderCore::load_state(const LoaderState& state) {
  impl_->choose_kind();
  impl_->pending = impl_->checked(state);
}

void LoaderCore::set_epoch(std::int64_t epoch) {
  if (impl_->pending && impl_->pending->epoch == epoch) return;
  impl_->pending = impl_->checked({.seed = impl_->next_start().seed, .epoch = epoch});
}

void LoaderCore::seek(std::int64_t batch) {
  impl_->choose_kind();
  LoaderState state = impl_->next_start();
  state.batch = batch;
  state.rows = -1;
  impl_->pending = impl_->checked(state);
}

void throw_unknown_size(const char* call) {
  throw UsageError("data.unknown-size",
                   {.what = str(call, ": the number of rows is unknown"),
                    .hint = "define size() in the dataset or stream, or check has_size() first"});
}

void throw_no_copies() {
  throw UsageError(
      "data.no-copies",
      {.what = "the last step of a stream cannot be filled up, because its rows cannot be copied",
       .hint = "set even_batches = false, or make the rows copyable"});
}

void throw_empty_part() {
  throw DataError("data.empty",
                  {.what = "this process's part of the stream has no rows",
                   .hint = "divide the stream into parts that have rows, or use fewer processes"});
}

at::Tensor pinned(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || !is_pinning_useful() || tensor.is_pinned())
    return tensor;
  return tensor.pin_memory();
}

}  // namespace hasten::detail
