// File: hasten/prepare/prepared.h
// What Accelerator::prepare gives back: handles that behave as the objects they stand for and know
// the step.
//
//   auto [model, optimizer, train_loader] = accelerator.prepare(net, adamw, batches);
//   auto y = model(x);             // under the Accelerator's precision; model-> reaches the module
//   itself optimizer.step();              // does nothing inside an accumulation window
//
// A handle shares its object: an lvalue given to prepare stays yours and must outlive the handle,
// an rvalue moves in. Copying a handle copies the reference. The types can be named:
// PreparedModel<Net>, PreparedLoader<Loader>, PreparedOptimizer, PreparedScheduler. Thread rule: as
// the objects'; one thread at a time.
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

// What a process that ran out of data takes over from one that went on.
class FollowedOptimizer : public Followed {
 public:
  explicit FollowedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer)
      : optimizer_(std::move(optimizer)) {}
  std::string state() const override;
  void follow(const std::string& state) override;
  std::int64_t steps = 0;

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};
class FollowedScheduler : public Followed {
 public:
  explicit FollowedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler)
      : scheduler_(std::move(scheduler)) {}
  void step();
  std::string state() const override;
  void follow(const std::string& state) override;
  std::int64_t seen = 0;  // of the optimizer's steps

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
    step_->observers.model(module_);
  }

  // The module's forward, under the Accelerator's precision.
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    ++step_->forwards;
    step_->before_forward(module_.get());
    const PhaseScope phase(step_->observers, StepPhase::forward);
    const AutocastGuard guard(step_->precision, step_->process.device.type());
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  Impl* operator->() const { return module_.get(); }
  Impl& operator*() const { return *module_; }
  // The module without its handle, as accelerate's unwrap_model.
  const std::shared_ptr<Impl>& unwrap() const { return module_; }
  // Lets go of the module; the handle is empty afterwards.
  void reset() { module_.reset(); }

 private:
  std::shared_ptr<Impl> module_;
  std::shared_ptr<Step> step_;
};

class PreparedOptimizer {
 public:
  using IsPrepared = void;

  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer, std::shared_ptr<Step> step);

  // Does nothing inside an accumulation window of its parameters. A window whose last micro-batch
  // had no backward pass is closed here. With several processes it throws UsageError
  // "prepare.raw-backward" where gradients come from loss.backward(), which exchanges nothing.
  void step();
  // For optimizers that evaluate the loss several times a step (LBFGS): the closure clears the
  // gradients, computes the loss, calls accelerator.backward(loss) and returns the loss; with
  // accumulation it does so for each micro-batch of the window, inside of accumulate(). With
  // several processes the optimizer is given the mean of their losses, so that all decide alike.
  // Gives what the optimizer gives, mostly the loss of the first evaluation. Throws UsageError
  // "prepare.closure-in-window", "prepare.open-window".
  at::Tensor step(const std::function<at::Tensor()>& closure);
  // Does nothing where it would lose gradients of an open window, wherever in the loop it stands.
  void zero_grad(bool set_to_none = true);

  // Steps that were made.
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
  std::shared_ptr<detail::FollowedOptimizer> count_;
};

class PreparedScheduler {
 public:
  using IsPrepared = void;

  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    std::shared_ptr<Step> step);
  // A scheduler of a prepared optimizer: counts that optimizer's steps.
  PreparedScheduler(std::shared_ptr<torch::optim::LRScheduler> scheduler,
                    const PreparedOptimizer& optimizer);

  // Counts optimizer steps: does nothing where the optimizer made none since the last call.
  void step();
  torch::optim::LRScheduler& unwrap() const { return *scheduler_; }
  torch::optim::LRScheduler* operator->() const { return scheduler_.get(); }
  void reset() { scheduler_.reset(); }

 private:
  void follow_first();

  std::shared_ptr<torch::optim::LRScheduler> scheduler_;
  std::shared_ptr<Step> step_;
  std::shared_ptr<detail::FollowedOptimizer> count_;
  std::shared_ptr<detail::FollowedScheduler> calls_;
};

// Iterates any loader (torch::data's, hasten's, a container of batches). Each batch is moved to the
// device, and the step knows which one is the last: hasten's loaders report it themselves, others
// are read one batch ahead. With several processes each one reads all batches of a loader that is
// not hasten's and keeps its own; hasten/prepare/foreign_loader.h says how these are kept alike. To
// begin a pass over such a loader is a collective.
template <class Loader>
class PreparedLoader {
  using Source = decltype(std::declval<Loader&>().begin());

 public:
  using IsPrepared = void;
  using Batch = std::remove_cvref_t<decltype(*std::declval<Source&>())>;
  static_assert(!detail::hides_members<Batch>(),
                "hasten cannot see the members of this loader's batches, so their tensors would "
                "not be moved to the device. Put a visit_tensors beside the type: "
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

    static constexpr bool kSharesRows = requires(const Loader& loader) { loader.rows_at_hand(); };

    // What can be read again and again as it is, draws no random numbers.
    static constexpr bool kDraws = !kSharesRows && !std::ranges::forward_range<const Loader>;

    // Inside of join_uneven_inputs the scope says whether the last step is filled up.
    static Source begin_of(Loader& loader, const Step& step, detail::ForeignLoader& foreign) {
      if constexpr (kSharesRows) {
        loader.set_even_batches(step.even_batches());
        return loader.begin();
      } else {
        return foreign.begin([&] { return loader.begin(); });
      }
    }

    // One pass over the loader; known to the step while it lives.
    struct Pass {
      Pass(Loader& loader, std::shared_ptr<Step> shared_step)
          : loader(loader),
            step(std::move(shared_step)),
            foreign(*step, kDraws),
            at(begin_of(loader, *step, foreign)),
            end(loader.end()) {
        take();
        step->loaders.push_back(&progress);  // last: what throws before leaves nothing behind
      }
      Pass(const Pass&) = delete;
      Pass& operator=(const Pass&) = delete;
      ~Pass() { std::erase(step->loaders, &progress); }

      void advance() {
        // take_own and the read ahead have moved on already.
        const bool moved = !kKnowsLast || (step->group.size() > 1 && !kSharesRows);
        if (!moved) reading([&] { ++at; });
        take();
      }
      // Calls what may read from the loader.
      template <class Call>
      auto reading(Call&& call) {
        if constexpr (kDraws) {
          return foreign.read(call);
        } else {
          return call();
        }
      }
      // A copy of references where that is possible: a container is to be read again.
      Batch batch() {
        if constexpr (std::is_copy_constructible_v<Batch>) {
          return *at;
        } else {
          return std::move(*at);
        }
      }
      // Makes the batch at hand the current one.
      void take() {
        current.reset();
        progress.rows = progress.real_rows = -1;
        if (step->group.size() > 1 && !kSharesRows) return take_own();
        std::optional<Batch> given = reading([&] {
          std::optional<Batch> next;
          if (at != end) next.emplace(batch());
          return next;
        });
        if (!given) return;
        current.emplace(arriving(std::move(*given)));
        if constexpr (kSharesRows) {
          progress.at_last_batch = loader.at_last_step();
        } else if constexpr (kKnowsLast) {
          progress.at_last_batch = loader.is_last();
        } else {
          progress.at_last_batch = reading([&] {
            ++at;  // what comes next shows whether this was the last
            return !(at != end);
          });
        }
        if constexpr (kSharesRows) {
          progress.rows = loader.rows_at_hand();
          progress.real_rows = loader.real_rows_at_hand();
        }
        count_filled_rows();
        if (!step->observers.empty()) tell_batch();
      }

      Batch arriving(Batch batch) {
        if (!step->device_placement) return batch;
        if constexpr (std::is_same_v<Batch, TensorDict>) {
          given_rows = rows_of(batch);
          full_rows = std::max(full_rows, given_rows);  // a last batch may be smaller
          return step->arriving(std::move(batch), full_rows);
        } else {
          for_each_tensor(batch, [this](at::Tensor& tensor) {
            if (const auto type = step->type_there(tensor)) tensor = tensor.to(*type);
          });
          return to_device(std::move(batch), step->process.device);
        }
      }
      // Rows that the batch was filled up with are none of the data's.
      void count_filled_rows() {
        if constexpr (std::is_same_v<Batch, TensorDict>) {
          const std::int64_t rows = rows_of(*current);
          if (given_rows < 0 || rows <= given_rows) return;
          if (progress.real_rows < 0) progress.real_rows = given_rows;
          progress.rows = rows;
        }
      }

      // Of a loader that cannot be divided every process reads all batches and keeps its own. Where
      // the last ones do not suffice for all, the first ones come again, or some processes have
      // none.
      void take_own() {
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
              for_each_tensor(each,
                              [&](const at::Tensor& tensor) { compared.push_back(tensor); });
            }
            if constexpr (std::is_copy_constructible_v<Batch>) {
              if (first.size() < world) first.push_back(each);
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
          if (first.empty()) detail::throw_uneven_batches();
          if constexpr (std::is_copy_constructible_v<Batch>)
            own.emplace(first[(rank - read) % first.size()]);
        }
        current.emplace(arriving(std::move(*own)));
        if (repeats) progress.real_rows = 0;  // of whatever type it is
        count_filled_rows();
        if (progress.rows < 0) {
          progress.rows = common_rows();
          if (!repeats) progress.real_rows = progress.rows;
        }
        if (!step->observers.empty()) tell_batch();
      }

      // The number of rows that all tensors of the batch have; -1: it has no tensors that are
      // known, or they disagree.
      std::int64_t common_rows() {
        std::int64_t rows = -1;
        bool same = true;
        for_each_tensor(*current, [&](const at::Tensor& tensor) {
          if (!tensor.defined() || tensor.dim() == 0) return;
          same = same && (rows < 0 || rows == tensor.size(0));
          rows = tensor.size(0);
        });
        return same ? rows : -1;
      }

      void tell_batch() {
        if (!step->device_placement) return;  // who brings it to the device tells
        std::vector<at::Tensor> tensors;
        for_each_tensor(*current, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
        step->observers.tell(&StepObserver::on_batch, tensors);
      }

      Loader& loader;
      std::shared_ptr<Step> step;
      detail::ForeignLoader foreign;
      Source at;
      decltype(std::declval<Loader&>().end()) end;
      std::optional<Batch> current;
      bool ended = false;                           // of a loader that cannot be divided
      std::vector<Batch> first;                     // of a loader that cannot be divided
      std::int64_t given_rows = -1, full_rows = 0;  // of batches that may be filled up
      LoaderProgress progress;
    };

    std::unique_ptr<Pass> pass_;
  };

  PreparedLoader(std::shared_ptr<Loader> loader, std::shared_ptr<Step> step)
      : loader_(std::move(loader)), step_(std::move(step)) {}

  Iterator begin() const { return Iterator(*loader_, step_); }
  std::default_sentinel_t end() const noexcept { return {}; }
  // Batches a pass.
  auto size() const requires requires(const Loader& loader) { loader.size(); }
  { return loader_->size(); }
  Loader& unwrap() const { return *loader_; }
  Loader* operator->() const { return loader_.get(); }
  void reset() { loader_.reset(); }

 private:
  std::shared_ptr<Loader> loader_;
  std::shared_ptr<Step> step_;
};

// By name, on a prepared optimizer (hasten/optim/scheduler.h).
PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                const SchedulerOptions& options);
// The peer's argument order: get_scheduler("linear", optimizer, num_warmup_steps,
// num_training_steps).
PreparedScheduler get_scheduler(const std::string& name, const PreparedOptimizer& optimizer,
                                std::int64_t num_warmup_steps, std::int64_t num_training_steps);

}  // namespace hasten
