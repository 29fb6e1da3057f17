// File: hasten/data/dataset.h
// The requirements of make_loader (hasten/data/loader.h) on a dataset. There is no base class.
//
//   struct Squares {                                     // a map dataset: rows by number
//     std::int64_t size() const { return 1000; }
//     TensorDict get(std::int64_t index) const {         // or get(index, const RowContext&)
//       return {{"x", at::full({1}, index)}, {"labels", at::full({1}, index * index)}};
//     }
//   };
//
//   struct Countdown {                                   // a stream: one row after the other
//     std::optional<at::Tensor> next() {                 // nothing at the end
//       return left > 0 ? std::optional(at::full({1}, left--)) : std::nullopt;
//     }
//     void rewind(std::int64_t) { left = 10; }           // before every pass, with the epoch
//     std::int64_t left = 10;
//   };
//
// Optional members:
// - `Batch get_batch(std::span<const std::int64_t> indices)` of a map dataset makes whole batches.
// - `std::int64_t size() const` of a stream is the number of its rows, if known.
// - `void skip(std::int64_t rows)` of a stream skips rows without making them. It skips all
//  remaining rows if there are fewer.
// - `void shard(std::int64_t num_shards, std::int64_t index)` of a stream makes it return only one
//  of its parts from the next rewind() on. Parts may have different lengths. Processes that read
//  for themselves (dispatch_batches = false) then read one part each instead of the whole stream.
//  A later call divides the whole stream again.
//
// These functions may throw. The pass through the loader then throws, with the batch in the message
// (hasten/data/loader.h). make_loader() throws ConfigError "data.option" and DataError
// "data.empty".
// Thread rule: with workers, get and get_batch of one dataset are called on several threads at
// once; a stream is called on one thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/data/context.h"

namespace hasten {

namespace detail {

// Throws UsageError "data.row" unless 0 <= index < rows.
HASTEN_API void require_row(std::int64_t index, std::int64_t rows);

template <class D>
concept GetsRow = requires(D& dataset, std::int64_t index) {
  dataset.get(index);
};
template <class D>
concept GetsRowWithContext = requires(D& dataset, std::int64_t index, const RowContext& context) {
  dataset.get(index, context);
};

template <class T>
struct OptionalValue;
template <class T>
struct OptionalValue<std::optional<T>> {
  using type = T;
};

}  // namespace detail

template <class D>
concept MapDataset = (detail::GetsRow<D> || detail::GetsRowWithContext<D>)&&requires(D& dataset) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
};

template <class D>
concept IterableDataset = requires(D& dataset, std::int64_t epoch) {
  typename detail::OptionalValue<std::remove_cvref_t<decltype(dataset.next())>>::type;
  dataset.rewind(epoch);
};

// A map dataset that makes whole batches.
template <class D>
concept BatchDataset = requires(D& dataset, std::span<const std::int64_t> indices) {
  { dataset.size() } -> std::convertible_to<std::int64_t>;
  dataset.get_batch(indices);
};

namespace detail {

template <MapDataset D>
decltype(auto) get_row(D& dataset, std::int64_t index, const RowContext& context) {
  if constexpr (GetsRowWithContext<D>) {
    return dataset.get(index, context);
  } else {
    return dataset.get(index);
  }
}

template <class D>
struct RowType;
template <MapDataset D>
struct RowType<D> {
  using type = std::remove_cvref_t<decltype(get_row(std::declval<D&>(), std::int64_t{},
                                                    std::declval<const RowContext&>()))>;
};
template <IterableDataset D>
requires(!MapDataset<D>) struct RowType<D> {
  using type =
      typename OptionalValue<std::remove_cvref_t<decltype(std::declval<D&>().next())>>::type;
};

}  // namespace detail

// The type of a dataset's rows.
template <class D>
using RowOf = typename detail::RowType<D>::type;

}  // namespace hasten
