// File: hasten/data/dataset.h
// What make_loader (hasten/data/loader.h) takes for a dataset. There is nothing to inherit from:
//
//   struct Squares {                                       // a map dataset: rows by number
//     std::int64_t size() const { return 1000; }
//     TensorDict get(std::int64_t index) const { ... }     // or get(index, const RowContext&)
//   };
//   struct Lines {                                         // a stream: rows one after the other
//     std::optional<TensorDict> next() { ... }             // nothing at the end
//     void rewind(std::int64_t epoch) { ... }              // to the start, before every pass
//   };
//
// Optional members that are used where they are there:
//   Batch get_batch(std::span<const std::int64_t> indices) // map: whole batches at once
//   std::int64_t size() const                              // stream: its rows, if known
//   void skip(std::int64_t rows)                           // stream: without making the rows
// Thread rule: with workers, get and get_batch of one dataset are called from several threads at
// once; a stream is called from one thread at a time.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "hasten/data/context.h"

namespace hasten {

namespace detail {

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

// What a row of the dataset is.
template <class D>
using RowOf = typename detail::RowType<D>::type;

}  // namespace hasten
