// File: hasten/data/loader.h
// Loads the batches of a dataset, in order or shuffled. Worker threads can load batches ahead of
// their use, and loading can resume at any batch.
//
//   auto loader = make_loader(dataset, {.batch_size = 8, .shuffle = true, .seed = 42},
//                             DataCollatorWithPadding{});       // a Loader<TensorDict>
//   for (int epoch = 0; epoch < 3; ++epoch) {
//     for (TensorDict& batch : loader) train_on(batch);         // each pass is a new epoch
//   }
//   LoaderState state = loader.state();                         // later, in another process:
//   loader.load_state(state);                                   // resumes after that batch
//
// A pass runs from begin() to the last batch of an epoch, and is finished once it has returned its
// last batch. After a finished pass, begin() starts the next epoch. At first, and after a pass that
// was left early, it starts the current epoch at its first batch. After load_state, seek or
// set_epoch, it starts at the position that they have set. A loader has one pass at a time: an
// iterator of an earlier pass throws.
//
// A batch is valid until the iterator advances. An error in a batch is thrown when its turn comes,
// and the message names the batch and the epoch. With several processes, each process reads its
// share of every step (hasten/data/detail/loader_sharding.h). Together they read the rows that one
// process reads, in the same order and with the same random keys (hasten/data/context.h).
//
// Thread rule: a loader belongs to one thread, and its workers belong to it; loaders are
// independent of each other. If rank 0 reads for all processes, a thread in each process sends and
// receives batches ahead, even if num_workers is 0, and leaving a pass early waits for the batches
// in transit. make_loader throws ConfigError "data.option" and DataError "data.empty"; invalid
// calls throw UsageError "data.*". Iterating throws what the dataset and the collator throw;
// exceptions that are not hasten's are wrapped in DataError "data.batch". If rank 0 reads for all
// processes, every process throws.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "hasten/data/collator.h"
#include "hasten/data/dataset.h"
#include "hasten/data/detail/batch_info.h"
#include "hasten/data/detail/loader_core.h"
#include "hasten/data/detail/loader_options.h"
#include "hasten/data/detail/loader_source.h"

namespace hasten {

template <class Batch>
class Loader {
 public:
  using value_type = Batch;

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    Iterator(Iterator&&) noexcept = default;
    Iterator& operator=(Iterator&& other) noexcept {
      core_.swap(other.core_);
      std::swap(pass_, other.pass_);
      return *this;
    }
    // Leaving the loop early ends the pass and stops its workers.
    ~Iterator() {
      if (core_) core_->end_pass(pass_);
    }

    Batch& operator*() const { return *static_cast<Batch*>(core_->current(pass_)); }
    Batch* operator->() const { return &**this; }
    // Information about the batch, such as how many of its rows count.
    const BatchInfo& info() const { return core_->info(pass_); }
    Iterator& operator++() {
      core_->advance(pass_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return it.core_->done(it.pass_);
    }

   private:
    friend class Loader;
    Iterator(std::shared_ptr<detail::LoaderCore> core, std::int64_t pass)
        : core_(std::move(core)), pass_(pass) {}
    std::shared_ptr<detail::LoaderCore> core_;  // An iterator may outlive its loader.
    std::int64_t pass_;
  };

  Loader(Loader&&) noexcept = default;  // A copy would refer to the same pass.
  Loader& operator=(Loader&&) noexcept = default;
  // For make_loader.
  explicit Loader(std::shared_ptr<detail::LoaderCore> core) : core_(std::move(core)) {}

  Iterator begin() { return Iterator(core_, core_->start_pass()); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // The number of batches that this process gets per epoch, and the number of rows of the dataset.
  // With elastic ranks, size() is the size of a pass that would begin now; it is larger while
  // gradients are enabled (hasten/data/detail/loader_sharding.h). Both throw UsageError
  // "data.unknown-size" for a stream of unknown size, for which has_size() is false.
  std::int64_t size() const {
    return core_->batches() ? *core_->batches() : (detail::throw_unknown_size("size()"), 0);
  }
  std::int64_t dataset_size() const {
    return core_->rows() ? *core_->rows() : (detail::throw_unknown_size("dataset_size()"), 0);
  }
  bool has_size() const { return core_->rows().has_value(); }
  // True if this process reads its own shard of a stream. A different number of processes would
  // then read different rows at the same position.
  bool reads_shard() const { return core_->reads_shard(); }
  std::int64_t batch_size() const { return core_->options().batch_size; }
  const LoaderOptions& options() const { return core_->options(); }

  // These describe the current batch: whether it is this process's last batch of the epoch (streams
  // are read one batch ahead to find out; BatchInfo::is_last considers all processes), its epoch,
  // and its number in the epoch, from 0. Between passes, epoch() and batch() are the start of the
  // next pass.
  bool is_last() const { return core_->is_last(); }
  std::int64_t epoch() const { return core_->epoch(); }
  std::int64_t batch() const { return core_->batch(); }

  // Reads only this process's share from the next pass on (hasten/data/detail/loader_sharding.h).
  // Accelerator::prepare calls it. A collective. Throws in every process: UsageError
  // "data.loaders-differ", or ConfigError "data.sharding" if the batches cannot be divided.
  void set_sharding(const LoaderSharding& sharding) { core_->set_sharding(sharding); }
  // Takes effect from the next pass on; see DataLoaderConfiguration::even_batches.
  void set_even_batches(bool even) { core_->set_even_batches(even); }

  // The position to resume from: after the current batch, or the start of the next epoch after the
  // last batch.
  LoaderState state() const { return core_->state(); }
  // Makes the next begin() start at this position. Throws DataError "data.state" for a position
  // past the end.
  void load_state(const LoaderState& state) { core_->load_state(state); }
  // Makes the next begin() start this epoch: at its first batch, or at the batch that load_state or
  // seek has set for it.
  void set_epoch(std::int64_t epoch) { core_->set_epoch(epoch); }
  // Makes the next begin() start at this batch of its epoch. This is immediate for map datasets; a
  // stream reads and drops the rows before it, unless it has skip(). If `batch` is size(), it
  // starts the next epoch.
  void seek(std::int64_t batch) { core_->seek(batch); }

 private:
  std::shared_ptr<detail::LoaderCore> core_;
};

// Creates a loader that collates the dataset's rows. The dataset is moved or copied; pass a
// std::shared_ptr to share it. torch::data's map datasets are accepted
// (hasten/data/detail/torch_dataset.h). Without a collator, a dataset with get_batch makes its own
// batches, and rows that are tensors or TensorDicts are stacked.
template <class D, class Collator = DefaultCollator>
auto make_loader(D dataset, LoaderOptions options = {}, Collator collator = {}) {
  using Source = detail::TypedSource<detail::DatasetOf<D>, Collator>;
  auto source = std::make_unique<Source>(detail::shared_dataset(std::move(dataset)),
                                         std::move(collator), options.pin_memory);
  auto core = std::make_shared<detail::LoaderCore>(std::move(source), std::move(options));
  return Loader<typename Source::Batch>(std::move(core));
}

}  // namespace hasten
