#include "hasten/data/loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "data/loader_checks.h"
#include "data/loader_impl.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::detail {

// Describes the properties that must be equal in all processes.
std::string LoaderCore::Impl::description() const {
  const auto flag = [](bool is, const char* name) { return is ? str(", ", name) : std::string(); };
  if (dispatch || sharding.configuration.dispatch_batches.value_or(stream())) {
    return str("a loader that rank 0 reads for all, batch_size ", options.batch_size);
  }
  if (source->is_shardable() && !sharding.configuration.split_batches)
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
  impl_->update_is_elastic();
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
  impl_->update_is_elastic();
  const auto rows = impl_->rows_of_epoch();
  if (!rows) return std::nullopt;
  return impl_->own_batches_of(*rows) * (impl_->is_elastic ? impl_->virtual_ranks() : 1);
}
std::optional<std::int64_t> LoaderCore::rows() const { return impl_->dataset_rows(); }
bool LoaderCore::reads_shard() const { return impl_->reads_shard; }
const LoaderOptions& LoaderCore::options() const { return impl_->options; }

// The processes first compare the properties that may differ between them. Then each checks the
// properties that are the same in all of them, so either all throw or none does.
void LoaderCore::set_sharding(const LoaderSharding& sharding) {
  if (sharding.group.size() == 1 && sharding.elastic.ranks == 0) return;
  Impl& own = *impl_;
  const bool again = own.sharding.group.size() > 1 || own.sharding.elastic.ranks > 0;
  if (!again) own.sharding.configuration = sharding.configuration;
  check_same_loader(own.description() + (again ? ", already prepared" : ""),
                    "prepare() the same loaders of the same data in the same order in every "
                    "process; each process then reads its part",
                    sharding.group);
  if (again) {
    throw ConfigError("data.sharding", {.what = "a loader is prepared twice",
                                        .hint = "prepare() it once and keep the handle"});
  }
  check_divisible(own.options, sharding);
  if (sharding.elastic.ranks > 0) check_elastic(own.stream());
  const bool dispatch = sharding.configuration.dispatch_batches.value_or(own.stream());
  if (dispatch) check_packable(*own.source);
  own.stop();
  own.sharding = sharding;
  own.update_is_elastic();
  if (dispatch) {
    const std::int64_t rows = own.rows_of_epoch().value_or(-1);
    const std::int64_t ahead =
        std::max<std::int64_t>(own.options.num_workers, 1) * own.options.prefetch_factor;
    const at::Tensor from_rank_0 = sharding.group.broadcast(at::tensor({rows, ahead}, at::kLong));
    const auto* const numbers = from_rank_0.const_data_ptr<std::int64_t>();
    own.broadcast_rows = numbers[0] < 0 ? std::nullopt : std::optional(numbers[0]);
    own.broadcast_prefetch = numbers[1];
    own.dispatch.emplace(
        sharding.group,
        [&source = *own.source](const ErasedBatch& batch) { return source.to_bytes(batch); },
        [&source = *own.source](const at::Tensor& bytes) { return source.from_bytes(bytes); });
  }
  own.reads_shard = !dispatch && sharding.group.size() > 1 && own.source->is_shardable() &&
                    !sharding.configuration.split_batches;
  if (own.reads_shard) own.source->shard(sharding.group.size(), sharding.group.rank());
  own.check_not_empty();
  if (own.pending) own.pending = own.validated(*own.pending);
}

void LoaderCore::set_even_batches(bool even) {
  if (impl_->sharding.configuration.even_batches == even) return;
  impl_->stop();
  impl_->sharding.configuration.even_batches = even;
}

LoaderState LoaderCore::state() const {
  impl_->update_is_elastic();
  const Impl& own = *impl_;
  if (own.pending) return own.state_to_save(own.resolved(*own.pending));
  // If other processes have one more batch, the epoch lasts until the pass ends here.
  if (own.finished && (!own.running || own.at_last_step()))
    return own.state_to_save(
        {.seed = own.options.seed, .epoch = own.epoch + 1, .batch = 0, .rows = 0});
  return own.state_to_save({.seed = own.options.seed,
                            .epoch = own.epoch,
                            .batch = own.batches_returned,
                            .rows = own.rows_returned});
}

void LoaderCore::load_state(const LoaderState& state) {
  impl_->update_is_elastic();
  impl_->pending = impl_->validated(state);
}

void LoaderCore::set_epoch(std::int64_t epoch) {
  if (impl_->pending && impl_->pending->epoch == epoch) return;
  impl_->pending = impl_->validated({.seed = impl_->next_start().seed, .epoch = epoch});
}

void LoaderCore::seek(std::int64_t batch) {
  impl_->update_is_elastic();
  LoaderState state = impl_->next_start();
  state.batch = batch;
  state.rows = -1;
  impl_->pending = impl_->validated(state);
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
       .hint = "make the rows copyable, set drop_last, or set even_batches = false and leave out "
               "dispatch_batches = false"});
}

void throw_empty_shard() {
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
