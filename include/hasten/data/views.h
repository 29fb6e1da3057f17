// File: hasten/data/views.h
// Datasets made from the rows of other datasets: parts, transformed rows, and several datasets as
// one.
//
//   auto split = train_test_split(dataset, {.test_size = 0.1});     // split.train, split.test
//   auto small = take_rows(dataset, 1000);
//   auto kept = filter_rows(dataset, [](const TensorDict& row) { return row.size() > 1; });
//   auto both = concatenate_datasets(dataset, kept);
//   auto mixed = interleave_datasets({.probabilities = {0.8, 0.2}}, dataset, small);
//   auto loader = make_loader(mixed, {.batch_size = 8, .shuffle = true});
//
// A view is a map dataset itself (hasten/data/dataset.h). It moves or copies the datasets; pass a
// std::shared_ptr to share one. A row's RowContext has its number in the outermost view, so a row
// that occurs twice has two keys.
// Throws UsageError "data.row" for a row that does not exist, and "data.option". Thread rule: the
// same as for the datasets; a function of map_rows is called on several threads at once.
// Source: select, take, skip, filter, map, train_test_split, concatenate_datasets and
// interleave_datasets of datasets 5.2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/dataset.h"
#include "hasten/data/detail/interleaving.h"
#include "hasten/data/detail/loader_source.h"

namespace hasten {

namespace detail {

// The rows of the two parts of a dataset.
struct SplitRows {
  std::vector<std::int64_t> train, test;
};

template <class D>
concept HasRows = MapDataset<DatasetOf<D>> || BatchDataset<DatasetOf<D>>;
template <class D>
concept HasSingleRows = MapDataset<DatasetOf<D>>;

}  // namespace detail

// Some rows of a dataset, in any order.
template <class D>
class SelectedRows {
 public:
  SelectedRows(std::shared_ptr<D> dataset, std::vector<std::int64_t> rows)
      : dataset_(std::move(dataset)), rows_(std::move(rows)) {
    const auto size = static_cast<std::int64_t>(dataset_->size());
    for (const std::int64_t row : rows_) detail::require_row(row, size);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  decltype(auto) get(std::int64_t index, const RowContext& context) const requires MapDataset<D> {
    return detail::get_row(*dataset_, row(index), context);
  }
  auto get_batch(std::span<const std::int64_t> indices) const requires BatchDataset<D> {
    std::vector<std::int64_t> rows;
    rows.reserve(indices.size());
    for (const std::int64_t index : indices) rows.push_back(row(index));
    return dataset_->get_batch(std::span<const std::int64_t>(rows));
  }

 private:
  std::int64_t row(std::int64_t index) const {
    detail::require_row(index, size());
    return rows_[static_cast<std::size_t>(index)];
  }

  std::shared_ptr<D> dataset_;
  std::vector<std::int64_t> rows_;
};

// The rows of a dataset, each passed through a function when it is read.
template <class D, class F>
class MappedRows {
 public:
  MappedRows(std::shared_ptr<D> dataset, F function)
      : dataset_(std::move(dataset)), function_(std::move(function)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(dataset_->size()); }
  auto get(std::int64_t index, const RowContext& context) const {
    return function_(detail::get_row(*dataset_, index, context));
  }

 private:
  std::shared_ptr<D> dataset_;
  F function_;
};

// Several datasets, one after the other.
template <class Row>
class JoinedRows {
 public:
  template <class... D>
  explicit JoinedRows(std::shared_ptr<D>... datasets) {
    (add(std::move(datasets)), ...);
  }

  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Row get(std::int64_t index, const RowContext& context) const {
    detail::require_row(index, size());
    const auto source = static_cast<std::size_t>(
        std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return sources_[source](source == 0 ? index : index - ends_[source - 1], context);
  }

 private:
  template <class D>
  void add(std::shared_ptr<D> dataset) {
    ends_.push_back(size() + static_cast<std::int64_t>(dataset->size()));
    sources_.push_back(
        [dataset = std::move(dataset)](std::int64_t index, const RowContext& context) -> Row {
          return detail::get_row(*dataset, index, context);
        });
  }

  std::vector<std::function<Row(std::int64_t, const RowContext&)>> sources_;
  std::vector<std::int64_t> ends_;
};

// Selects the given rows, which may repeat.
template <detail::HasRows D>
auto select_rows(D dataset, std::vector<std::int64_t> rows) {
  return SelectedRows<detail::DatasetOf<D>>(detail::shared_dataset(std::move(dataset)),
                                            std::move(rows));
}

namespace detail {
template <class D>
auto range_of_rows(D dataset, std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(std::max<std::int64_t>(0, end - first)));
  std::iota(rows.begin(), rows.end(), first);
  return select_rows(std::move(dataset), std::move(rows));
}
}  // namespace detail

// Return the first `count` rows, and the rows after them. If the dataset has fewer rows, take_rows
// returns all of them and skip_rows returns none.
template <detail::HasRows D>
auto take_rows(D dataset, std::int64_t count) {
  auto shared = detail::shared_dataset(std::move(dataset));
  const auto size = static_cast<std::int64_t>(shared->size());
  return detail::range_of_rows(std::move(shared), 0, std::min(count, size));
}
template <detail::HasRows D>
auto skip_rows(D dataset, std::int64_t count) {
  auto shared = detail::shared_dataset(std::move(dataset));
  const auto size = static_cast<std::int64_t>(shared->size());
  return detail::range_of_rows(std::move(shared), std::max<std::int64_t>(0, count), size);
}

// The rows for which keep(row) is true. Reads every row once, immediately.
template <detail::HasSingleRows D, class Keep>
auto filter_rows(D dataset, Keep&& keep) {
  auto shared = detail::shared_dataset(std::move(dataset));
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(shared->size()); ++row) {
    if (keep(detail::get_row(*shared, row, RowContext{.row = row}))) rows.push_back(row);
  }
  return select_rows(std::move(shared), std::move(rows));
}

// Replaces each row by function(row), which is called whenever the row is read.
template <detail::HasSingleRows D, class F>
auto map_rows(D dataset, F function) {
  return MappedRows<detail::DatasetOf<D>, F>(detail::shared_dataset(std::move(dataset)),
                                             std::move(function));
}

// Joins datasets with rows of the same type, one after the other.
template <detail::HasSingleRows First, detail::HasSingleRows... Rest>
auto concatenate_datasets(First first, Rest... rest) {
  using Row = RowOf<detail::DatasetOf<First>>;
  static_assert((std::is_same_v<Row, RowOf<detail::DatasetOf<Rest>>> && ...),
                "hasten::concatenate_datasets: the datasets have rows of different types");
  return JoinedRows<Row>(detail::shared_dataset(std::move(first)),
                         detail::shared_dataset(std::move(rest))...);
}

// Takes a row from each dataset in turn, or draws the dataset of each row with the probabilities.
template <detail::HasSingleRows... D>
auto interleave_datasets(const InterleaveOptions& options, D... datasets) {
  const std::tuple all(detail::shared_dataset(std::move(datasets))...);
  return std::apply(
      [&](const auto&... shared) {
        const std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(shared->size())...};
        return select_rows(concatenate_datasets(shared...),
                           detail::interleaved_rows(sizes, options));
      },
      all);
}

struct TrainTestSplitOptions {
  double test_size = 0.25;  // Below 1: a share of the rows, rounded up. Otherwise a number of rows.
  bool shuffle = true;      // If false, the last rows are the test.
  std::uint64_t seed = 42;
};
template <class D>
struct TrainTestSplit {
  SelectedRows<D> train, test;
};

namespace detail {
HASTEN_API SplitRows split_rows(std::int64_t rows, const TrainTestSplitOptions& options);
}  // namespace detail

// Divides the rows into two parts, neither of them empty.
template <detail::HasRows D>
auto train_test_split(D dataset, const TrainTestSplitOptions& options = {}) {
  auto shared = detail::shared_dataset(std::move(dataset));
  auto rows = detail::split_rows(static_cast<std::int64_t>(shared->size()), options);
  return TrainTestSplit<detail::DatasetOf<D>>{.train = select_rows(shared, std::move(rows.train)),
                                              .test = select_rows(shared, std::move(rows.test))};
}

}  // namespace hasten
