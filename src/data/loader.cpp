#include "hasten/data/loader.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>

#include "data/batch_error.h"
#include "data/batch_pipe.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

void check_range(const char* option, std::int64_t got, std::int64_t least, std::int64_t most) {
  if (got >= least && got <= most) return;
  throw ConfigError(
      "data.option",
      {.what = option, .got = std::to_string(got), .expected = str(least, " to ", most)});
}

void check_options(const LoaderOptions& options, bool stream) {
  check_range("batch_size", options.batch_size, 1, std::int64_t{1} << 40);
  check_range("num_workers", options.num_workers, 0, 1024);
  check_range("prefetch_factor", options.prefetch_factor, 1, 65536);
  if (options.shuffle && options.order) {
    throw ConfigError("data.option", {.what = "both shuffle and an order of your own are set",
                                      .hint = "keep one"});
  }
  if (stream && (options.shuffle || options.order)) {
    throw ConfigError(
        "data.option",
        {.what = "a stream has its own order: shuffle and order do not apply to it",
         .hint = "shuffle inside the stream, or give the dataset size() and get(index)"});
  }
}

}  // namespace

struct LoaderCore::Impl {
  std::unique_ptr<BatchSource> source;
  LoaderOptions options;
  LoaderShare share;
  std::optional<std::int64_t> ordered_rows;  // rows of an epoch under options.order

  std::optional<LoaderState> pending;  // what the next pass starts with, if it was said
  std::int64_t epoch = 0;              // of the pass that runs or ran last
  std::int64_t handed_out = 0;         // its batches, with those seek left out and the one at hand
  bool finished = false;               // its last batch has been handed out

  std::int64_t pass = 0;  // counts passes, so that iterators of earlier ones are told
  bool running = false;
  std::int64_t total = unknown_end;  // batches of the epoch, where known
  EpochOrder order;
  std::unique_ptr<BatchPipe> pipe;
  AnyBatch current;
  Made ahead;  // streams: the batch after the current one

  bool stream() const { return source->is_stream(); }
  // Of a batch here, and of the batches of all processes together.
  std::int64_t own_rows() const {
    return share.split_batches ? options.batch_size / share.world : options.batch_size;
  }
  std::int64_t step_rows() const { return own_rows() * share.world; }
  std::int64_t first_row(std::int64_t number) const {
    return number * step_rows() + share.rank * own_rows();
  }
  std::int64_t batches_of(std::int64_t rows) const {
    return options.drop_last ? rows / step_rows() : (rows + step_rows() - 1) / step_rows();
  }
  // Of batch `number` the rows that the order has left for it.
  std::int64_t real_rows(std::int64_t number) const {
    return std::clamp<std::int64_t>(order.size() - first_row(number), 0, own_rows());
  }
  std::optional<std::int64_t> rows_of_epoch() const {
    return ordered_rows ? ordered_rows : source->rows();
  }
  std::optional<std::int64_t> batches() const {
    const auto rows = rows_of_epoch();
    return rows ? std::optional(batches_of(*rows)) : std::nullopt;
  }

  void check_not_empty() const;
  LoaderState next_start() const;
  LoaderState checked(LoaderState state) const;
  void start(const LoaderState& from);
  void start_order();
  AnyBatch make(std::int64_t number) const;
  std::span<const std::int64_t> rows_of(std::int64_t number,
                                        std::vector<std::int64_t>& scratch) const;
  void hand_out();
  void stop();
  void require_running(std::int64_t of_pass) const;
};

void LoaderCore::Impl::check_not_empty() const {
  const auto rows = rows_of_epoch();
  if (!rows || batches_of(*rows) > 0) return;
  if (*rows <= 0) throw DataError("data.empty", {.what = "the dataset has no rows"});
  throw ConfigError(
      "data.option",
      {.what = "drop_last leaves no batch at all",
       .got = str(*rows, " rows"),
       .expected = str("at least ", step_rows(),
                       share.world == 1 ? ", batch_size" : ", a batch for each process"),
       .hint = "set drop_last = false, or a smaller batch_size"});
}

// Without a word from the user: on with the next epoch after a finished pass, else the epoch at
// hand anew.
LoaderState LoaderCore::Impl::next_start() const {
  if (pending) return *pending;
  return {.seed = options.seed, .epoch = finished ? epoch + 1 : epoch, .batch = 0};
}

LoaderState LoaderCore::Impl::checked(LoaderState state) const {
  const auto count = stream() ? std::nullopt : batches();
  if (state.epoch < 0 || state.batch < 0 || (count && state.batch > *count)) {
    throw DataError(
        "data.state",
        {.what = "a place to start from",
         .got = str("batch ", state.batch, " of epoch ", state.epoch),
         .expected = count ? str("a batch from 0 to ", *count) : "numbers from 0",
         .hint = "the dataset or batch_size is not the one that the state was saved with"});
  }
  if (count && state.batch == *count) {
    return {.seed = state.seed, .epoch = state.epoch + 1, .batch = 0};
  }
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

// One of several processes has full batches: what the end of the epoch lacks comes from its start.
std::span<const std::int64_t> LoaderCore::Impl::rows_of(std::int64_t number,
                                                        std::vector<std::int64_t>& scratch) const {
  const std::int64_t first = first_row(number), real = real_rows(number);
  if (share.world == 1 || real == own_rows()) return order.slice(first, real, scratch);
  std::vector<std::int64_t> rows, one;
  for (std::int64_t i = 0; i < own_rows(); ++i)
    rows.push_back(order.slice((first + i) % order.size(), 1, one).front());
  scratch = std::move(rows);
  return scratch;
}

// In a worker thread, for maps from several at once: it reads what a running pass does not change.
AnyBatch LoaderCore::Impl::make(std::int64_t number) const {
  const c10::NoGradGuard no_grad;  // data has no gradients, in this thread or in a worker's
  const BatchContext context{
      .seed = options.seed, .epoch = epoch, .batch = number * share.world + share.rank};
  std::vector<std::int64_t> scratch;
  std::span<const std::int64_t> rows;
  try {
    if (stream()) return source->next(options, context);
    rows = rows_of(number, scratch);
    return source->make(rows, context);
  } catch (...) {
    rethrow_with_batch(context, rows);
  }
}

void LoaderCore::Impl::start(const LoaderState& from) {
  stop();
  ++pass;
  options.seed = from.seed;
  epoch = from.epoch;
  handed_out = from.batch;
  finished = false;
  pending.reset();
  check_not_empty();
  if (stream()) {
    source->rewind(epoch);
    if (from.batch > 0) source->skip(from.batch * options.batch_size);
  } else {
    start_order();
  }
  total = stream() ? unknown_end : batches_of(order.size());
  const std::int64_t threads =
      stream() ? std::min<std::int64_t>(options.num_workers, 1) : options.num_workers;
  pipe = make_pipe([this](std::int64_t number) { return make(number); }, from.batch, total, threads,
                   options.num_workers * options.prefetch_factor);
  running = true;
  if (stream()) {
    ahead = pipe->next();
    if (ahead.is_end()) {
      stop();
      if (from.batch == 0) throw DataError("data.empty", {.what = "the stream gave no batch"});
      throw DataError(
          "data.state",
          {.what = str("the stream ended before batch ", from.batch, " of epoch ", from.epoch),
           .hint = "the stream is not the one that the state was saved with"});
    }
  }
  hand_out();
}

// The next batch becomes the current one; none does at the end of the pass.
void LoaderCore::Impl::hand_out() {
  current.reset();
  if (finished) return;
  Made next = stream() ? std::exchange(ahead, {}) : pipe->next();
  if (next.error) {
    stop();
    std::rethrow_exception(next.error);
  }
  if (stream()) ahead = pipe->next();
  ++handed_out;
  finished = stream() ? ahead.is_end() : handed_out == total;
  current = std::move(next.batch);
}

void LoaderCore::Impl::stop() {
  pipe.reset();
  current.reset();
  ahead = {};
  running = false;
}

void LoaderCore::Impl::require_running(std::int64_t of_pass) const {
  if (running && of_pass == pass) return;
  throw UsageError(
      "data.pass",
      {.what = "this pass over the loader has ended",
       .hint = "a loader has one pass at a time; a second loop over the same rows at the "
               "same time needs a loader of its own"});
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
  impl_->check_not_empty();
}

LoaderCore::~LoaderCore() { impl_->stop(); }

std::int64_t LoaderCore::start_pass() {
  impl_->start(impl_->next_start());
  return impl_->pass;
}

void LoaderCore::end_pass(std::int64_t pass) {
  if (pass == impl_->pass) impl_->stop();
}

void LoaderCore::advance(std::int64_t pass) {
  impl_->require_running(pass);
  impl_->hand_out();
}

void* LoaderCore::current(std::int64_t pass) const {
  impl_->require_running(pass);
  return impl_->current.get();
}

bool LoaderCore::done(std::int64_t pass) const {
  impl_->require_running(pass);
  return impl_->current == nullptr;
}

bool LoaderCore::is_last() const { return impl_->current != nullptr && impl_->finished; }
std::int64_t LoaderCore::epoch() const {
  return impl_->current ? impl_->epoch : impl_->next_start().epoch;
}
std::int64_t LoaderCore::batch() const {
  return impl_->current ? impl_->handed_out - 1 : impl_->next_start().batch;
}
std::optional<std::int64_t> LoaderCore::batches() const { return impl_->batches(); }
std::optional<std::int64_t> LoaderCore::rows() const { return impl_->source->rows(); }
const LoaderOptions& LoaderCore::options() const { return impl_->options; }

void LoaderCore::share(const LoaderShare& share) {
  if (share.world == 1) return;
  if (impl_->stream()) {
    throw ConfigError("data.share",
                      {.what = "a stream read by several processes",
                       .expected = "a dataset with size() and get(index), which can be divided",
                       .hint = "streams across processes come with a later release"});
  }
  if (impl_->share.world > 1)
    throw ConfigError("data.share",
                      {.what = "a loader that is divided already", .hint = "prepare() it once"});
  if (share.split_batches && impl_->options.batch_size % share.world != 0) {
    throw ConfigError("data.share", {.what = "split_batches",
                                     .got = str("batches of ", impl_->options.batch_size, " rows"),
                                     .expected = str("a multiple of ", share.world,
                                                     ", the number of processes")});
  }
  impl_->stop();
  impl_->share = share;
  impl_->check_not_empty();
}

std::int64_t LoaderCore::rows_at_hand() const {
  if (impl_->stream()) return -1;
  return impl_->share.world == 1 ? real_rows_at_hand() : impl_->own_rows();
}
std::int64_t LoaderCore::real_rows_at_hand() const {
  return impl_->stream() ? -1 : impl_->real_rows(impl_->handed_out - 1);
}

LoaderState LoaderCore::state() const {
  if (impl_->pending) return *impl_->pending;
  if (impl_->finished) return {.seed = impl_->options.seed, .epoch = impl_->epoch + 1, .batch = 0};
  return {.seed = impl_->options.seed, .epoch = impl_->epoch, .batch = impl_->handed_out};
}

void LoaderCore::load_state(const LoaderState& state) { impl_->pending = impl_->checked(state); }

void LoaderCore::set_epoch(std::int64_t epoch) {
  if (impl_->pending && impl_->pending->epoch == epoch) return;
  impl_->pending = impl_->checked({.seed = impl_->next_start().seed, .epoch = epoch, .batch = 0});
}

void LoaderCore::seek(std::int64_t batch) {
  LoaderState state = impl_->next_start();
  state.batch = batch;
  impl_->pending = impl_->checked(state);
}

void throw_unknown_size(const char* call) {
  throw UsageError("data.unknown-size",
                   {.what = str(call, " of a loader over a stream that does not know its rows"),
                    .hint = "give the stream a size(), or ask has_size() first"});
}

at::Tensor pinned(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || !at::hasCUDA() || tensor.is_pinned()) return tensor;
  return tensor.pin_memory();
}

}  // namespace hasten::detail
