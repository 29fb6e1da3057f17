// File: hasten/data/loader.h
// Batches of a dataset, in order or shuffled, made ahead by threads where asked to, and resumable
// at any batch.
//
//   auto loader = make_loader(dataset, {.batch_size = 8, .shuffle = true, .seed = 42},
//                             DataCollatorWithPadding{});       // a Loader<TensorDict>
//   for (int epoch = 0; epoch < 3; ++epoch) {
//     for (TensorDict& batch : loader) train_on(batch);         // each pass is a new epoch
//   }
//   LoaderState state = loader.state();                         // later, in another process:
//   loader.load_state(state);                                   // goes on with the batch after it
//
// A pass goes from begin() to the last batch and is one epoch; it is finished once its last batch
// has been handed out. What begin() starts: after a finished pass the next epoch; after a pass that
// was broken off, or at first, the epoch at hand from its first batch; after load_state, seek or
// set_epoch what they said. A loader has one pass at a time: an iterator of an earlier one throws.
//
// A batch is valid until the iterator moves on. One with an error in it throws when its turn comes,
// and the text says which batch of which epoch it was.
// With several processes each has its share of every step (hasten/data/share.h): the same rows in
// the same order, and with the same randomness (hasten/data/context.h), as one process has.
//
// Thread rule: a loader belongs to one thread; its workers are its own. Loaders know nothing of one
// another. Where rank 0 reads for all, a thread in each process sends and receives ahead, whatever
// num_workers says, and ending a pass early waits for the batches under way.
// Throws ConfigError "data.option", DataError "data.empty" when made; UsageError "data.*" for calls
// that make no sense; while iterating, in every process where rank 0 reads for all, what dataset
// and collator throw (other exceptions than hasten's as DataError "data.batch").
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "hasten/data/collator.h"
#include "hasten/data/dataset.h"
#include "hasten/data/loader_core.h"
#include "hasten/data/loader_source.h"

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
    // Leaving the loop early ends the pass here: its workers stop.
    ~Iterator() {
      if (core_) core_->end_pass(pass_);
    }

    Batch& operator*() const { return *static_cast<Batch*>(core_->current(pass_)); }
    Batch* operator->() const { return &**this; }
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
    std::shared_ptr<detail::LoaderCore> core_;  // an iterator may outlive its loader
    std::int64_t pass_;
  };

  Loader(Loader&&) noexcept = default;  // a copy would be a second name for the same pass
  Loader& operator=(Loader&&) noexcept = default;
  // For make_loader.
  explicit Loader(std::shared_ptr<detail::LoaderCore> core) : core_(std::move(core)) {}

  Iterator begin() { return Iterator(core_, core_->start_pass()); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Batches that this process has of a whole epoch, and rows of the dataset. A stream that does not
  // know throws UsageError "data.unknown-size"; has_size() asks.
  std::int64_t size() const {
    return core_->batches() ? *core_->batches() : (detail::throw_unknown_size("size()"), 0);
  }
  std::int64_t dataset_size() const {
    return core_->rows() ? *core_->rows() : (detail::throw_unknown_size("dataset_size()"), 0);
  }
  bool has_size() const { return core_->rows().has_value(); }
  std::int64_t batch_size() const { return core_->options().batch_size; }
  const LoaderOptions& options() const { return core_->options(); }

  // Of the batch at hand: whether it is the last of its epoch (streams are read one batch ahead to
  // know), its epoch, and its number in the epoch, from 0. Between passes, epoch() is that of the
  // next pass, and batch() its first.
  bool is_last() const { return core_->is_last(); }
  std::int64_t epoch() const { return core_->epoch(); }
  std::int64_t batch() const { return core_->batch(); }

  // From the next pass on only this process's share (hasten/data/share.h). Accelerator::prepare
  // does this. A collective. Throws in every process: UsageError "data.loaders-differ", ConfigError
  // "data.share" where it cannot be divided.
  void share(const LoaderShare& share) { core_->share(share); }
  void set_even_batches(bool even) { core_->set_even_batches(even); }  // from the next pass on
  // Whether no process has a batch after the one at hand.
  bool at_last_step() const { return core_->at_last_step(); }
  // Rows of the batch at hand, and those of them that no other process has and no earlier batch
  // had.
  std::int64_t rows_at_hand() const { return core_->rows_at_hand(); }
  std::int64_t real_rows_at_hand() const { return core_->real_rows_at_hand(); }

  // Where to go on from: after the batch at hand, and after the last batch the start of the next
  // epoch.
  LoaderState state() const { return core_->state(); }
  // The next begin() starts there. DataError "data.state" for a batch past the end.
  void load_state(const LoaderState& state) { core_->load_state(state); }
  // The next begin() starts that epoch, from its first batch, or from the batch that load_state or
  // seek set for it.
  void set_epoch(std::int64_t epoch) { core_->set_epoch(epoch); }
  // The next begin() starts at that batch of its epoch. At once for map datasets; a stream reads
  // and drops the rows before it, unless it has skip(). The number of batches (size()) means the
  // start of the epoch after.
  void seek(std::int64_t batch) { core_->seek(batch); }

 private:
  std::shared_ptr<detail::LoaderCore> core_;
};

// A loader of the dataset's rows put together by the collator. The dataset is moved or copied in;
// pass a std::shared_ptr to it to share it. torch::data's map datasets are taken as they are
// (hasten/data/torch_dataset.h). Without a collator, datasets that make whole batches
// make them, and rows that are tensors or TensorDicts are stacked.
template <class D, class Collator = DefaultCollator>
auto make_loader(D dataset, LoaderOptions options = {}, Collator collator = {}) {
  using Source = detail::TypedSource<detail::DatasetOf<D>, Collator>;
  auto source = std::make_unique<Source>(detail::shared_dataset(std::move(dataset)),
                                         std::move(collator), options.pin_memory);
  auto core = std::make_shared<detail::LoaderCore>(std::move(source), std::move(options));
  return Loader<typename Source::Batch>(std::move(core));
}

}  // namespace hasten
