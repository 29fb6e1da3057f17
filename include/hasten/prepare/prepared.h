// File: hasten/prepare/prepared.h
// The handles that Accelerator::prepare returns. They behave like the objects they stand for and
// take part in gradient accumulation.
//
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   auto y = model(x);  // in the Accelerator's precision; model-> accesses the module itself
//   optimizer.step();   // does nothing inside an accumulation window
//
// A handle shares its object: an lvalue given to prepare must outlive the handle, and an rvalue is
// moved into it. A copy of a handle refers to the same object. The types can be named:
// PreparedModel<Net>, PreparedLoader<Loader>, PreparedOptimizer, PreparedScheduler. Thread rule:
// that of the objects; one thread at a time.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <concepts>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/optim/scheduler.h"
#include "hasten/prepare/foreign_loader.h"
#include "hasten/prepare/step.h"
#include "hasten/prepare/to_device.h"

namespace hasten {

namespace detail {
[[noreturn]] void throw_uneven_batches();

// The state of an optimizer, which a process that ran out of data copies from one that continued.
class SyncedOptimizer : public SyncedState {
 public:
  explicit SyncedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {}
  std::string state() const override;
  void restore(const std::string& state) override;
  std::int64_t steps = 0;

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};
// The same for a scheduler.
class SyncedScheduler : public SyncedState {
 public:
  explicit SyncedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  void step();
  std::string state() const override;
  void restore(const std::string& state) override;
  // The number of the optimizer's steps at the scheduler's last step.
  std::int64_t optimizer_steps = 0;

 private:
  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::int64_t steps_ = 0;
};
}  // namespace detail

template <class Impl>
class PreparedModel {
 public:
  using IsPrepared = void;

  PreparedModel(std::shared_ptr<Impl> module, std::shared_ptr<Step> step)
      : module_(std::move(module)), step_(std::move(step)) {
    step_->observers.add_model(module_);
  }

  // Calls the module's forward() in the Accelerator's precision.
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    ++step_->forwards;
    step_->sync_buffers(module_.get());
    const PhaseScope phase(step_->observers, StepPhase::forward);
    const AutocastGuard guard(step_->precision, step_->process.device.type());
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  Impl* operator->() const { return module_.get(); }
  Impl& operator*() const { return *module_; }
  // The module without its handle, as Accelerate's unwrap_model.
  const std::shared_ptr<Impl>& unwrap() const { return module_; }
  // Releases the module. The handle is empty afterwards.
  void reset() { module_.reset(); }

 private:
  std::shared_ptr<Impl> module_;
  std::shared_ptr<Step> step_;
};

class PreparedOptimizer {
 public:
  using IsPrepared = void;

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, std::shared_ptr<Step> step);

  // Makes a step, unless an accumulation window of its parameters waits for more micro-batches.
  // Closes a window whose last micro-batch had no backward pass. With several processes it throws
  // UsageError "prepare.raw-backward" if gradients come from loss.backward(), which exchanges
  // nothing.
  void step();
  // For optimizers that evaluate the loss several times in a step (LBFGS). The closure clears the
  // gradients, computes the loss, calls accelerator.backward(loss) and returns the loss; with
  // gradient accumulation it does so for each micro-batch of the window, inside accumulate(). With
  // several processes the optimizer receives the mean of their losses, so that all make the same
  // decisions. Returns what the optimizer returns, usually the loss of the first evaluation. Throws
  // UsageError "prepare.closure-in-window", "prepare.open-window".
  at::Tensor step(const std::function<at::Tensor()>& closure);
  // Clears the gradients, unless that would lose gradients of an open window; so it may be called
  // anywhere in the loop.
  void zero_grad(bool set_to_none = true);

  // The number of steps made so far.
  std::int64_t steps() const;
  torch::optim::Optimizer& unwrap() const { return *optimizer_; }
  torch::optim::Optimizer* operator->() const { return optimizer_.get(); }
  void reset() { optimizer_.reset(); }

 private:
  friend class PreparedScheduler;
  std::vector<at::Tensor> parameters() const;
  at::Tensor evaluate(const std::function<at::Tensor()>& closure);
  void count_step();

  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<Step> step_;
  std::shared_ptr<detail::SyncedOptimizer> synced_optimizer_;
};

class PreparedScheduler {
 public:
  using IsPrepared = void;

  // A scheduler whose step() does nothing while the latest micro-batch does not close its window.
  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    std::shared_ptr<Step> step);
  // A scheduler of a prepared optimizer: its step() does nothing if that optimizer has made no step
  // since the last call.
  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    const PreparedOptimizer& optimizer);

  // Advances the schedule by one optimizer step.
  void step();
  torch::optim::LRScheduler& unwrap() const { return *scheduler_; }
  torch::optim::LRScheduler* operator->() const { return scheduler_.get(); }
  void reset() { scheduler_.reset(); }

 private:
  void register_before_optimizers();

  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::shared_ptr<Step> step_;
  std::shared_ptr<detail::SyncedOptimizer> synced_optimizer_;
  std::shared_ptr<detail::SyncedScheduler> synced_scheduler_;
};

// Iterates over any loader (torch::data's, hasten's, a container of batches). It moves each batch
// to the device and finds out which one is the last: hasten's loaders report it, others are read
// one batch ahead. With several processes, each process reads all batches of a loader that is not
// hasten's and keeps its own; hasten/prepare/foreign_loader.h describes how they are made equal.
// The start of a pass over such a loader is a collective.
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

    Iterator(Loader& loader, std::shared_ptr<Step> step)
        : pass_(std::make_unique<Pass>(loader, std::move(step))) {}

    Batch& operator*() const { return *pass_->current; }
    Batch* operator->() const { return &*pass_->current; }
    Iterator& operator++() {
      pass_->advance();
      return *this;
    }
    void operator++(int) { pass_->advance(); }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) {
      return !it.pass_->current.has_value();
    }

   private:
    static constexpr bool kKnowsLast = requires(const Loader& loader) {
      { loader.is_last() } -> std::convertible_to<bool>;
    };

    static constexpr bool kSharesRows = requires(const Loader& loader) { loader.current_rows(); };

    // A loader with const forward iterators returns the same batches each time, so it draws no
    // random numbers.
    static constexpr bool kDraws = !kSharesRows && !std::ranges::forward_range<const Loader>;

    // Inside join_uneven_inputs the scope decides whether the last step is filled up.
    static Source begin_of(Loader& loader, const Step& step, detail::ForeignLoader& foreign) {
      if constexpr (kSharesRows) {
        loader.set_even_batches(step.even_batches());
        return loader.begin();
      } else {
        return foreign.begin([&] { return loader.begin(); });
      }
    }

    // One pass over the loader, registered in step->loaders during its lifetime.
    struct Pass {
      Pass(Loader& loader, std::shared_ptr<Step> shared_step)
          : loader(loader),
            step(std::move(shared_step)),
            foreign(*step, kDraws),
            at(begin_of(loader, *step, foreign)),
            end(loader.end()) {
        // Before its last step, a loader that shares rows has full batches only.
        if constexpr (!kSharesRows && std::is_same_v<Batch, TensorDict>) {
          progress.pads_every_batch =
              step->device_placement && step->dataloader.pad_to_static_shapes.value_or(false);
        }
        read_batch();
        step->loaders.push_back(&progress);  // last, in case the constructor throws
      }
      Pass(const Pass&) = delete;
      Pass& operator=(const Pass&) = delete;
      ~Pass() { std::erase(step->loaders, &progress); }

      void advance() {
        // read_own_batch and the read ahead have already advanced the iterator.
        const bool moved = !kKnowsLast || (step->group.size() > 1 && !kSharesRows);
        if (!moved) reading([&] { ++at; });
        read_batch();
      }
      // Makes a call that may read from the loader.
      template <class Call>
      auto reading(Call&& call) {
        if constexpr (kDraws) {
          return foreign.read(call);
        } else {
          return call();
        }
      }
      // Copies the batch, that is its references to tensors, if its type can be copied, because a
      // container has to keep its batches.
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
        progress.rows = progress.real_rows = -1;
        if (step->group.size() > 1 && !kSharesRows) return read_own_batch();
        std::optional<Batch> given = reading([&] {
          std::optional<Batch> next;
          if (at != end) next.emplace(batch());
          return next;
        });
        if (!given) return;
        current.emplace(place_batch(std::move(*given)));
        if constexpr (kSharesRows) {
          progress.at_last_batch = loader.at_last_step();
        } else if constexpr (kKnowsLast) {
          progress.at_last_batch = loader.is_last();
        } else {
          progress.at_last_batch = reading([&] {
            ++at;  // reads ahead to learn whether this batch is the last
            return !(at != end);
          });
        }
        if constexpr (kSharesRows) {
          progress.rows = loader.current_rows();
          progress.real_rows = loader.current_real_rows();
        }
        count_padded_rows();
        if (!step->observers.empty()) notify_batch();
      }

      Batch place_batch(Batch batch) {
        if (!step->device_placement) return batch;
        if constexpr (std::is_same_v<Batch, TensorDict>) {
          unpadded_rows = rows_of(batch);
          full_rows = std::max(full_rows, unpadded_rows);  // a last batch may be smaller
          return step->place_batch(std::move(batch), full_rows);
        } else {
          for_each_tensor(batch, [this](at::Tensor& tensor) {
            if (const auto type = step->device_type_of(tensor)) tensor = tensor.to(*type);
          });
          return to_device(std::move(batch), step->process.device);
        }
      }
      // Counts the rows of a batch that was filled up, which are not all rows of the data.
      void count_padded_rows() {
        if constexpr (std::is_same_v<Batch, TensorDict>) {
          const std::int64_t rows = rows_of(*current);
          if (unpadded_rows < 0 || rows <= unpadded_rows) return;
          if (progress.real_rows < 0) progress.real_rows = unpadded_rows;
          progress.rows = rows;
        }
      }

      // Reads a step of a loader that cannot be divided: one batch for each process, of which this
      // process keeps its own. If the last batches are not enough for all, the first ones are
      // repeated, or without even_batches some processes get none.
      void read_own_batch() {
        if (ended) return;
        const auto rank = static_cast<std::size_t>(step->group.rank());
        const auto world = static_cast<std::size_t>(step->group.size());
        std::vector<at::Tensor> compared;
        const bool compares = foreign.compares();
        std::optional<Batch> own;
        std::size_t read = 0;
        reading([&] {
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
        if (compares) foreign.compare(compared);
        progress.at_last_batch = ended;
        if (read == 0) return;
        const bool repeats = !own.has_value();
        if (repeats) {
          if (!step->even_batches()) return;
          if (first_batches.empty()) detail::throw_uneven_batches();
          if constexpr (std::is_copy_constructible_v<Batch>)
            own.emplace(first_batches[(rank - read) % first_batches.size()]);
        }
        current.emplace(place_batch(std::move(*own)));
        if (repeats) progress.real_rows = 0;  // whatever the type of the batch
        count_padded_rows();
        if (progress.rows < 0) {
          progress.rows = row_count();
          if (!repeats) progress.real_rows = progress.rows;
        }
        if (!step->observers.empty()) notify_batch();
      }

      // The number of rows, if all tensors of the batch have the same; -1 if they differ or if the
      // batch has no tensors that for_each_tensor reaches.
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

      void notify_batch() {
        if (!step->device_placement) return;  // Accelerator::to_device reports the batch then
        std::vector<at::Tensor> tensors;
        for_each_tensor(*current, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
        step->observers.notify(&StepObserver::on_batch, tensors);
      }

      Loader& loader;
      std::shared_ptr<Step> step;
      detail::ForeignLoader foreign;
      Source at;
      decltype(std::declval<Loader&>().end()) end;
      std::optional<Batch> current;
      // For a loader that cannot be divided: whether it has ended, and its first batches, one for
      // each process.
      bool ended = false;
      std::vector<Batch> first_batches;
      // Rows of the current batch before it was filled up, and the most rows of a batch so far.
      std::int64_t unpadded_rows = -1, full_rows = 0;
      LoaderProgress progress;
    };

    std::unique_ptr<Pass> pass_;
  };

  PreparedLoader(std::shared_ptr<Loader> loader, std::shared_ptr<Step> step)
      : loader_(std::move(loader)), step_(std::move(step)) {}

  Iterator begin() const { return Iterator(*loader_, step_); }
  std::default_sentinel_t end() const noexcept { return {}; }
  // The size that the loader itself reports.
  auto size() const requires requires(const Loader& loader) { loader.size(); }
  { return loader_->size(); }
  Loader& unwrap() const { return *loader_; }
  Loader* operator->() const { return loader_.get(); }
  void reset() { loader_.reset(); }

 private:
  std::shared_ptr<Loader> loader_;
  std::shared_ptr<Step> step_;
};

// Makes a scheduler by its name for a prepared optimizer; see hasten/optim/scheduler.h.
PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                const SchedulerOptions& options);
// The same in the argument order of transformers:
// get_scheduler("linear", optimizer, num_warmup_steps, num_training_steps).
PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                std::int64_t num_warmup_steps, std::int64_t num_training_steps);

}  // namespace hasten
