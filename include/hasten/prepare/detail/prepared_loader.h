// File: hasten/prepare/detail/prepared_loader.h
// The handle of a loader that Accelerator::prepare returns.
//
//   auto prepared = std::get<0>(accelerator.prepare(loader));
//   for (const auto& batch : prepared) train_on(batch);
//   for (const auto& [batch, info] : with_info(prepared)) {  // hasten/data/detail/batch_info.h
//     if (info.is_last) std::cout << "the last batch\n";
//   }
//
// It iterates over any loader: torch::data's, hasten's, a container of batches. It moves each batch
// to the device and finds out which one is the last: hasten's loaders report it, others are read
// one batch ahead. With several processes, hasten's loaders read the rows of their own process
// (hasten/data/detail/loader_sharding.h).
//
// With any other loader every process reads all batches and keeps its own, so all must read
// the same batches. Samplers that draw from the default generator draw the same numbers in every
// process, and a run reads the same rows with one process and with several. Samplers with their own
// engine, and workers that draw numbers, cannot be made equal. Therefore the batches of the first
// step of each pass are compared, or with AcceleratorOptions::debug the batches of every step. The
// start of a pass over such a loader is a collective.
//
// Throws UsageError "prepare.batches-differ", "prepare.uneven-batches" and "prepare.empty-handle";
// inside join_uneven_inputs also "prepare.join-call". Thread rule: the same as for the Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/batch_info.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/prepare/detail/loader_position.h"
#include "hasten/prepare/detail/to_device.h"

namespace hasten {

class AcceleratorState;

namespace detail {

[[noreturn]] HASTEN_API void throw_empty_handle(const char* handle);
// Returns the object of a handle. Throws UsageError "prepare.empty-handle" if the handle is empty;
// `handle` names it in the error.
template <class Object>
const std::shared_ptr<Object>& object_of(const std::shared_ptr<Object>& object,
                                         const char* handle) {
  if (!object) throw_empty_handle(handle);
  return object;
}

[[noreturn]] HASTEN_API void throw_uneven_batches();
[[noreturn]] HASTEN_API void throw_position_past_end(std::int64_t batches);
// Returns the position of this loader of hasten if a handle of it exists, otherwise null.
HASTEN_API std::shared_ptr<LoaderPosition> known_position(AcceleratorState& state,
                                                          const void* loader);
// Makes the position of a prepared loader a part of the Accelerator's checkpoints.
HASTEN_API void add_position(AcceleratorState& state,
                             const std::shared_ptr<LoaderPosition>& position);

// The part of a pass over a prepared loader that does not depend on types. From enter() to the end
// of the pass, `info` describes the Accelerator's current batch.
class HASTEN_API LoaderPass {
 public:
  // `draws` is true if the loader is not hasten's and may draw random numbers. `position` is null
  // for hasten's loaders.
  LoaderPass(std::shared_ptr<AcceleratorState> state, bool draws,
             std::shared_ptr<ForeignLoaderPosition> position);
  LoaderPass(const LoaderPass&) = delete;
  LoaderPass& operator=(const LoaderPass&) = delete;
  ~LoaderPass();

  // For a loader that is not hasten's, call start() before its begin(), and finish_start() after
  // the steps that a resumed pass skips. Between the two calls, LibTorch's generator has the state
  // that it had when that pass began.
  void start();
  void finish_start();
  // The number of steps that the pass has to skip because it continues from a checkpoint.
  std::int64_t skipped_steps() const;
  // Counts a step of a loader that is not hasten's. `info` describes its batch.
  void count_step();

  // Makes `info` describe the batch of the innermost loop.
  void enter();

  // Calls the begin() of a loader that is not hasten's, in every process with the state of rank 0's
  // generator.
  template <class Call>
  auto begin(Call&& call) {
    const Scope scope(*this, &LoaderPass::enter_begin, &LoaderPass::leave_begin);
    return call();
  }
  // Makes any other call that may read from the loader, with the generator of the pass.
  template <class Call>
  auto read(Call&& call) {
    const Scope scope(*this, &LoaderPass::enter_read, &LoaderPass::leave_read);
    return call();
  }
  // True if the batches of the current step have to be compared.
  bool compares() const;
  // Compares the tensors of the batches that this process has just read with the tensors that the
  // other processes have read. A collective.
  void compare(const std::vector<at::Tensor>& tensors);

  std::int64_t rank() const;
  std::int64_t world_size() const;
  bool even_batches() const;

  // True if batches are moved to the device, and if they may be padded there.
  bool moves_batches() const;
  bool pads_batches() const;
  at::Device device() const;
  // The type that the tensor gets on the device; unset if it keeps its own.
  std::optional<at::ScalarType> type_of(const at::Tensor& tensor) const;
  // Moves a batch to the device, in the shapes and types that it needs there.
  TensorDict place(TensorDict batch);
  // Sets `info` for a batch that place() has padded, so that not all of its rows are rows of the
  // data.
  void count_padded_rows(const TensorDict& placed);

  // True if report() has a listener.
  bool is_observed() const;
  // Reports the tensors of a batch that has been moved to the device.
  void report(const std::vector<at::Tensor>& tensors) const;

  // The facts about the current batch.
  BatchInfo info;

 private:
  using Action = void (LoaderPass::*)();
  class Scope {
   public:
    Scope(LoaderPass& pass, Action enter, Action leave) : pass_(pass), leave_(leave) {
      (pass.*enter)();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { (pass_.*leave_)(); }

   private:
    LoaderPass& pass_;
    Action leave_;
  };
  struct Impl;

  void enter_begin();
  void leave_begin();
  void enter_read();
  void leave_read();

  std::unique_ptr<Impl> impl_;
};

}  // namespace detail

template <class Loader>
class PreparedLoader {
  using Source = decltype(std::declval<Loader&>().begin());

 public:
  using IsPrepared = void;
  using Batch = std::remove_cvref_t<decltype(*std::declval<Source&>())>;
  static_assert(!detail::has_unreachable_members<Batch>(),
                "hasten cannot reach the members of this loader's batches, so their tensors would "
                "stay on their device. Define visit_tensors in the namespace of the type: "
                "hasten/data/batch.h");

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator(std::shared_ptr<Loader> loader, std::shared_ptr<AcceleratorState> state,
             std::shared_ptr<detail::ForeignLoaderPosition> position)
        : pass_(std::make_unique<Pass>(std::move(loader), std::move(state), std::move(position))) {}

    Batch& operator*() const { return *pass_->current; }
    Batch* operator->() const { return &*pass_->current; }
    // The facts about the batch, such as the number of its real rows.
    const BatchInfo& info() const { return pass_->loader_pass.info; }
    Iterator& operator++() {
      pass_->advance();
      return *this;
    }
    void operator++(int) { pass_->advance(); }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return !it.pass_->current.has_value();
    }

   private:
    static constexpr bool kHasIsLast = requires(const Loader& loader) {
      { loader.is_last() } -> std::convertible_to<bool>;
    };

    // True for hasten's loaders, which divide their rows and know the info of their batches.
    static constexpr bool kShardsRows = requires(Loader & loader, const Source& at) {
      loader.set_even_batches(true);
      { at.info() } -> std::convertible_to<BatchInfo>;
    };

    // A loader with const forward iterators returns the same batches each time, so it draws no
    // random numbers.
    static constexpr bool kDrawsRandomNumbers =
        !kShardsRows && !std::ranges::forward_range<const Loader>;

    // Inside join_uneven_inputs the scope decides whether the last step is filled up.
    static Source begin_of(Loader& loader, detail::LoaderPass& loader_pass) {
      if constexpr (kShardsRows) {
        loader.set_even_batches(loader_pass.even_batches());
        return loader.begin();
      } else {
        loader_pass.start();
        return loader_pass.begin([&] { return loader.begin(); });
      }
    }

    // One pass over the loader.
    struct Pass {
      Pass(std::shared_ptr<Loader> shared, std::shared_ptr<AcceleratorState> state,
           std::shared_ptr<detail::ForeignLoaderPosition> position)
          : owner(std::move(shared)),
            loader(*owner),
            loader_pass(std::move(state), kDrawsRandomNumbers, std::move(position)),
            at(begin_of(loader, loader_pass)),
            end(loader.end()) {
        skip_steps();
        read_batch();
        loader_pass.enter();  // last, in case the constructor throws
      }
      Pass(const Pass&) = delete;
      Pass& operator=(const Pass&) = delete;

      // Reads the steps before the one that a resumed pass starts with.
      void skip_steps() {
        const std::int64_t steps = loader_pass.skipped_steps();
        for (std::int64_t step = 0; step < steps; ++step) {
          read_batch();
          if (!current) detail::throw_position_past_end(steps);
          const bool moved = !kHasIsLast || loader_pass.world_size() > 1;
          if (!moved) call_with_generator([&] { ++at; });
        }
        loader_pass.finish_start();
      }

      void advance() {
        // read_own_batch and the read ahead have already advanced the iterator.
        const bool moved = !kHasIsLast || (loader_pass.world_size() > 1 && !kShardsRows);
        if (!moved) call_with_generator([&] { ++at; });
        read_batch();
      }
      // Makes a call that may read from the loader. A loader that draws random numbers uses the
      // generator of the pass.
      template <class Call>
      auto call_with_generator(Call&& call) {
        if constexpr (kDrawsRandomNumbers) {
          return loader_pass.read(call);
        } else {
          return call();
        }
      }
      // Copies the batch if its type can be copied, because a container has to keep its batches.
      // The copy shares the tensors.
      Batch batch() {
        if constexpr (std::is_copy_constructible_v<Batch>) {
          return *at;
        } else {
          return std::move(*at);
        }
      }
      // Makes the batch at the iterator the current one.
      void read_batch() {
        current.reset();
        loader_pass.info.rows = loader_pass.info.real_rows = -1;
        if (loader_pass.world_size() > 1 && !kShardsRows) return read_own_batch();
        std::optional<Batch> given = call_with_generator([&] {
          std::optional<Batch> next;
          if (at != end) next.emplace(batch());
          return next;
        });
        if (!given) return;
        current.emplace(place_batch(std::move(*given)));
        if constexpr (kShardsRows) {
          loader_pass.info = at.info();
        } else if constexpr (kHasIsLast) {
          set_is_last(loader.is_last());
        } else {
          set_is_last(call_with_generator([&] {
            ++at;  // reads ahead to learn whether this batch is the last
            return !(at != end);
          }));
        }
        count_padded_rows();
        loader_pass.count_step();
        report_batch();
      }

      // A loader that shards rows has only full batches before its last step. Batches of any other
      // loader may differ in their number of rows, so each of them may be padded.
      void set_is_last(bool is_last) {
        loader_pass.info.is_last = is_last;
        loader_pass.info.may_be_padded =
            is_last || (std::is_same_v<Batch, TensorDict> && loader_pass.pads_batches());
      }

      Batch place_batch(Batch batch) {
        if (!loader_pass.moves_batches()) return batch;
        if constexpr (std::is_same_v<Batch, TensorDict>) {
          return loader_pass.place(std::move(batch));
        } else {
          for_each_tensor(batch, [this](at::Tensor& tensor) {
            if (const auto type = loader_pass.type_of(tensor)) tensor = tensor.to(*type);
          });
          return to_device(std::move(batch), loader_pass.device());
        }
      }
      void count_padded_rows() {
        if constexpr (std::is_same_v<Batch, TensorDict>) loader_pass.count_padded_rows(*current);
      }

      // Reads a step of a loader that cannot be divided: one batch for each process. This process
      // keeps its own. If the last batches are not enough for all processes, the first batches are
      // repeated, or without even_batches some processes get none.
      void read_own_batch() {
        if (ended) return;
        const auto rank = static_cast<std::size_t>(loader_pass.rank());
        const auto world = static_cast<std::size_t>(loader_pass.world_size());
        std::vector<at::Tensor> compared;
        const bool compares = loader_pass.compares();
        std::optional<Batch> own;
        std::size_t read = 0;
        call_with_generator([&] {
          for (; read < world && at != end; ++read, ++at) {
            Batch each = batch();
            if (compares) {
              for_each_tensor(each, [&](const at::Tensor& tensor) { compared.push_back(tensor); });
            }
            if constexpr (std::is_copy_constructible_v<Batch>) {
              if (first_batches.size() < world) first_batches.push_back(each);
            }
            if (read == rank) own.emplace(std::move(each));
          }
          ended = !(at != end);
        });
        if (compares) loader_pass.compare(compared);
        set_is_last(ended);
        if (read == 0) return;
        const bool repeats = !own.has_value();
        if (repeats) {
          if (!loader_pass.even_batches()) return;
          if (first_batches.empty()) detail::throw_uneven_batches();
          if constexpr (std::is_copy_constructible_v<Batch>)
            own.emplace(first_batches[(rank - read) % first_batches.size()]);
        }
        current.emplace(place_batch(std::move(*own)));
        if (repeats) loader_pass.info.real_rows = 0;  // whatever the type of the batch
        count_padded_rows();
        if (loader_pass.info.rows < 0) {
          loader_pass.info.rows = row_count();
          if (!repeats) loader_pass.info.real_rows = loader_pass.info.rows;
        }
        loader_pass.count_step();
        report_batch();
      }

      // The number of rows if all tensors of the batch have the same number; -1 if they differ or
      // if the batch has no tensors that for_each_tensor reaches.
      std::int64_t row_count() {
        std::int64_t rows = -1;
        bool same = true;
        for_each_tensor(*current, [&](const at::Tensor& tensor) {
          if (!tensor.defined() || tensor.dim() == 0) return;
          same = same && (rows < 0 || rows == tensor.size(0));
          rows = tensor.size(0);
        });
        return same ? rows : -1;
      }

      void report_batch() {
        if (!loader_pass.is_observed()) return;
        std::vector<at::Tensor> tensors;
        for_each_tensor(*current, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
        loader_pass.report(tensors);
      }

      // Keeps the loader alive if the loop empties the handle.
      std::shared_ptr<Loader> owner;
      Loader& loader;
      detail::LoaderPass loader_pass;
      Source at;
      decltype(std::declval<Loader&>().end()) end;
      std::optional<Batch> current;
      // For a loader that cannot be divided: whether it has ended, and its first batches, one for
      // each process.
      bool ended = false;
      std::vector<Batch> first_batches;
    };

    std::unique_ptr<Pass> pass_;
  };

  PreparedLoader(std::shared_ptr<Loader> loader, std::shared_ptr<AcceleratorState> state)
      : loader_(std::move(loader)), state_(std::move(state)) {
    if constexpr (kHasState) {
      position_ = detail::known_position(*state_, loader_.get());
      if (position_) return;
      position_ = std::make_shared<detail::HastenLoaderPosition<Loader>>(loader_);
    } else {
      position_ = foreign_position_ = std::make_shared<detail::ForeignLoaderPosition>();
    }
    detail::add_position(*state_, position_);
  }

  Iterator begin() const { return Iterator(shared(), state_, foreign_position_); }
  std::default_sentinel_t end() const noexcept { return {}; }
  // The size that the loader itself reports.
  auto size() const requires requires(const Loader& loader) { loader.size(); }
  { return shared()->size(); }
  Loader& unwrap() const { return *shared(); }
  Loader* operator->() const { return shared().get(); }
  // False if the handle is empty (hasten/prepare/detail/prepared.h).
  explicit operator bool() const noexcept { return loader_ != nullptr; }
  // Releases the loader. A pass that has begun keeps it alive until the pass ends.
  void reset() {
    loader_.reset();
    position_.reset();
    foreign_position_.reset();
  }

 private:
  const std::shared_ptr<Loader>& shared() const {
    return detail::object_of(loader_, "a prepared loader");
  }

  static constexpr bool kHasState = requires(Loader & loader, const LoaderState& state) {
    { loader.state() } -> std::same_as<LoaderState>;
    loader.load_state(state);
  };

  std::shared_ptr<Loader> loader_;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<detail::LoaderPosition> position_;
  std::shared_ptr<detail::ForeignLoaderPosition> foreign_position_;  // null for hasten's loaders
};

}  // namespace hasten
