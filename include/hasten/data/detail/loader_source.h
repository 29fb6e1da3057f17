// File: hasten/data/detail/loader_source.h
// The typed part of a loader: a dataset and a collator as a detail::BatchSource. Part of
// hasten/data/loader.h.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hasten/data/collator.h"
#include "hasten/data/dataset.h"
#include "hasten/data/detail/loader_core.h"
#include "hasten/data/detail/pack.h"
#include "hasten/data/detail/torch_dataset.h"

namespace hasten::detail {

// Returns the dataset as a shared_ptr: moved, shared, or behind the adapter for torch::data.
template <class D>
auto shared_dataset(D dataset) {
  if constexpr (TorchMapDataset<D>) {
    return std::make_shared<TorchDataset<D>>(std::make_shared<D>(std::move(dataset)));
  } else {
    return std::make_shared<D>(std::move(dataset));
  }
}
template <class D>
auto shared_dataset(std::shared_ptr<D> dataset) {
  if constexpr (TorchMapDataset<D>) {
    return std::make_shared<TorchDataset<D>>(std::move(dataset));
  } else {
    return dataset;
  }
}
template <class D>
using DatasetOf = typename decltype(shared_dataset(std::declval<D>()))::element_type;

template <class Collator, class Row>
concept Collates = requires(const Collator& collator, std::span<const Row> rows) {
  collator(rows);
};
template <class Collator, class Row>
concept CollatesWithContext = requires(const Collator& collator, std::span<const Row> rows,
                                       const BatchContext& context) {
  collator(rows, context);
};
template <class Collator, class Row>
concept CollatesWithRowContexts = requires(const Collator& collator, std::span<const Row> rows,
                                           std::span<const RowContext> contexts) {
  collator(rows, contexts);
};

// True if the dataset's get_batch makes the batches.
template <class D, class Collator>
constexpr bool makes_batches = BatchDataset<D>&& std::same_as<Collator, DefaultCollator>;

// `row_number(i)` returns the number of the i-th row for its RowContext.
template <class Collator, class Row, class RowNumber>
auto collate(const Collator& collator, std::span<const Row> rows, const BatchContext& context,
             [[maybe_unused]] RowNumber&& row_number) {
  static_assert(Collates<Collator, Row> || CollatesWithContext<Collator, Row> ||
                    CollatesWithRowContexts<Collator, Row>,
                "hasten::make_loader: this collator does not take std::span<const Row> of the "
                "dataset's rows. Pass one that does; DataCollatorWithPadding{} takes TokenRows.");
  if constexpr (CollatesWithRowContexts<Collator, Row>) {
    std::vector<RowContext> contexts;
    contexts.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      contexts.push_back({.seed = context.seed, .epoch = context.epoch, .row = row_number(i)});
    }
    return collator(rows, std::span<const RowContext>(contexts));
  } else if constexpr (CollatesWithContext<Collator, Row>) {
    return collator(rows, context);
  } else if constexpr (Collates<Collator, Row>) {
    return collator(rows);
  }
}

template <class D, class Collator>
auto batch_of(D& dataset, const Collator& collator, std::span<const std::int64_t> indices,
              const BatchContext& context) {
  if constexpr (makes_batches<D, Collator>) {
    return dataset.get_batch(indices);
  } else {
    using Row = RowOf<D>;
    std::vector<Row> rows;
    rows.reserve(indices.size());
    for (const std::int64_t index : indices) {
      rows.push_back(get_row(
          dataset, index, RowContext{.seed = context.seed, .epoch = context.epoch, .row = index}));
    }
    return collate(collator, std::span<const Row>(rows), context,
                   [&](std::size_t i) { return indices[i]; });
  }
}

template <class D, class Collator>
struct BatchTypeOf {
  using type = decltype(collate(
      std::declval<const Collator&>(), std::declval<std::span<const RowOf<D>>>(),
      std::declval<const BatchContext&>(), std::declval<std::int64_t (*)(std::size_t)>()));
};
template <class D, class Collator>
requires makes_batches<D, Collator>
struct BatchTypeOf<D, Collator> {
  using type = std::remove_cvref_t<decltype(std::declval<D&>().get_batch(
      std::declval<std::span<const std::int64_t>>()))>;
};

template <class D, class CollatorType>
class TypedSource : public BatchSource {
  static_assert(MapDataset<D> || BatchDataset<D> || IterableDataset<D>,
                "hasten::make_loader takes a dataset with size() and get(index), or with next() "
                "and rewind(epoch): see hasten/data/dataset.h");
  static constexpr bool stream = !MapDataset<D> && !BatchDataset<D>;

 public:
  using Batch = typename BatchTypeOf<D, CollatorType>::type;

  TypedSource(std::shared_ptr<D> dataset, CollatorType collator, bool pin)
      : dataset_(std::move(dataset)), collator_(std::move(collator)), pin_(pin) {}

  bool is_stream() const override { return stream; }
  std::optional<std::int64_t> rows() const override {
    if constexpr (requires { dataset_->size(); }) {
      return static_cast<std::int64_t>(dataset_->size());
    } else {
      return std::nullopt;
    }
  }
  ErasedBatch make([[maybe_unused]] std::span<const std::int64_t> indices,
                   [[maybe_unused]] const BatchContext& context) override {
    if constexpr (stream) {
      return nullptr;
    } else {
      return finish(batch_of(*dataset_, collator_, indices, context));
    }
  }
  void rewind([[maybe_unused]] std::int64_t epoch, [[maybe_unused]] std::int64_t keep) override {
    if constexpr (stream) {
      dataset_->rewind(epoch);
      kept_.clear();
      keep_ = std::is_copy_constructible_v<Row> ? static_cast<std::size_t>(keep) : 0;
    }
  }
  void skip([[maybe_unused]] std::int64_t rows) override {
    if constexpr (stream) {
      while (rows > 0 && kept_.size() < keep_ && next()) --rows;
      if constexpr (requires { dataset_->skip(rows); }) {
        if (rows > 0) dataset_->skip(rows);
      } else {
        while (rows > 0 && next()) --rows;
      }
    }
  }
  bool is_shardable() const override {
    if constexpr (stream) {
      return requires(D & dataset) { dataset.shard(std::int64_t{}, std::int64_t{}); };
    } else {
      return false;
    }
  }
  void shard([[maybe_unused]] std::int64_t num_shards,
             [[maybe_unused]] std::int64_t index) override {
    if constexpr (stream) {
      if constexpr (requires(D & dataset) { dataset.shard(num_shards, index); })
        dataset_->shard(num_shards, index);
    }
  }
  std::int64_t read([[maybe_unused]] std::int64_t rows) override {
    if constexpr (stream) {
      read_.clear();
      while (static_cast<std::int64_t>(read_.size()) < rows) {
        auto row = next();
        if (!row) break;
        read_.push_back(std::move(*row));
      }
    }
    return static_cast<std::int64_t>(read_.size());
  }
  ErasedBatch make_from_read_rows([[maybe_unused]] std::int64_t first,
                                  [[maybe_unused]] std::int64_t rows,
                                  [[maybe_unused]] std::int64_t step_start,
                                  [[maybe_unused]] const BatchContext& context) override {
    if constexpr (!stream) {
      return nullptr;
    } else {
      std::vector<Row> own;
      own.reserve(static_cast<std::size_t>(rows));
      for (auto at = static_cast<std::size_t>(first); own.size() < static_cast<std::size_t>(rows);
           ++at) {
        if (at < read_.size()) {
          own.push_back(std::move(read_[at]));
        } else if constexpr (std::is_copy_constructible_v<Row>) {
          if (kept_.empty()) throw_empty_shard();
          own.push_back(kept_[(at - read_.size()) % kept_.size()]);
        } else {
          throw_no_copies();
        }
      }
      return finish(collate(collator_, std::span<const Row>(own), context, [&](std::size_t i) {
        return step_start + first + static_cast<std::int64_t>(i);
      }));
    }
  }

  bool is_packable() const override { return PackableBatch<Batch>; }
  at::Tensor to_bytes([[maybe_unused]] const ErasedBatch& batch) const override {
    if constexpr (PackableBatch<Batch>) {
      return pack(*static_cast<const Batch*>(batch.get()));
    } else {
      return {};
    }
  }
  ErasedBatch from_bytes([[maybe_unused]] const at::Tensor& bytes) const override {
    if constexpr (PackableBatch<Batch>) {
      return finish(unpack<Batch>(bytes));
    } else {
      return nullptr;
    }
  }

 private:
  // A dataset that makes whole batches has no known type of rows.
  struct NoRow {};
  template <class T>
  struct RowOfStream {
    using type = NoRow;
  };
  template <IterableDataset T>
  struct RowOfStream<T> {
    using type = RowOf<T>;
  };
  using Row = typename RowOfStream<std::conditional_t<stream, D, NoRow>>::type;

  auto next() {
    auto row = dataset_->next();
    if constexpr (std::is_copy_constructible_v<Row>) {
      if (row && kept_.size() < keep_) kept_.push_back(*row);
    }
    return row;
  }

  ErasedBatch finish(Batch batch) const {
    if (pin_) for_each_tensor(batch, [](at::Tensor& tensor) { tensor = pinned(tensor); });
    return std::make_shared<Batch>(std::move(batch));
  }

  std::shared_ptr<D> dataset_;
  std::vector<Row> read_;  // For a stream: the rows of the current step.
  std::vector<Row> kept_;  // For a stream: the first rows of the epoch, at most keep_.
  std::size_t keep_ = 0;
  CollatorType collator_;
  bool pin_;
};

}  // namespace hasten::detail
