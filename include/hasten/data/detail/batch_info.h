// File: hasten/data/detail/batch_info.h
// Information about a batch in addition to its data: how many of its rows count, and whether it is
// the last. It travels with the batch, from a loader through a prepared loader to the loop.
//
//   for (const auto& [batch, info] : with_info(loader)) {
//     std::cout << info.real_rows << " of " << info.rows << " rows\n";
//   }
//
// Thread rule: the same as for the loader. The references are valid until the iterator advances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace hasten {

// The place of a batch in an optimizer step of a run with elastic ranks
// (AcceleratorOptions::elastic_ranks).
struct ElasticBatchInfo {
  std::int64_t virtual_rank = 0;  // the rank that the batch belongs to
  std::int64_t step = 0;          // the step of all virtual ranks, from 0 in the epoch
  std::int64_t position = 0;      // its number among this process's batches of the window, from 0
  bool begins_rank = false;       // the first batch of its virtual rank in the window
  bool ends_rank = false;         // the last one
  bool ends_window = false;       // the last batch of this process in the window
  std::uint64_t key = 0;          // derived from the seed of the loader, the epoch and the rows
};

struct BatchInfo {
  // The number of rows of this process's batch; -1 if unknown.
  std::int64_t rows = -1;
  // The number of rows that no other process and no earlier batch has had. Rows that fill up the
  // last step and rows of padding do not count. -1 means all rows.
  std::int64_t real_rows = -1;
  // True if no process has a batch after this one.
  bool is_last = false;
  // True if some rows of this batch, or of another process's batch in the same step, may not count,
  // or if the processes' batches may differ in length.
  bool may_be_padded = false;
  // Set in a training pass of a loader whose Accelerator has elastic ranks.
  std::optional<ElasticBatchInfo> elastic = {};
  // The numbers of the first rows in the dataset, at most kNamedRows, for messages. Empty for a
  // stream, for a loader that is not hasten's, and if another process has read the batch.
  std::vector<std::int64_t> first_rows = {};
  static constexpr std::size_t kNamedRows = 8;
};

// A batch and the information about it.
template <class Batch>
struct BatchWithInfo {
  Batch& batch;
  const BatchInfo& info;
};

// The range that with_info() returns.
template <class Loader>
class LoaderWithInfo {
  using Source = decltype(std::declval<Loader&>().begin());

 public:
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = BatchWithInfo<std::remove_reference_t<decltype(*std::declval<Source&>())>>;

    explicit Iterator(Source source) : source_(std::move(source)) {}
    value_type operator*() const { return {*source_, source_.info()}; }
    Iterator& operator++() {
      ++source_;
      return *this;
    }
    void operator++(int) { ++source_; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t end) {
      return it.source_ == end;
    }

   private:
    Source source_;
  };

  explicit LoaderWithInfo(Loader& loader) : loader_(loader) {}
  Iterator begin() const { return Iterator(loader_.begin()); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Loader& loader_;
};

// Iterates over a hasten loader or a prepared loader, with the information about each batch.
template <class Loader>
LoaderWithInfo<Loader> with_info(Loader& loader) {
  return LoaderWithInfo<Loader>(loader);
}

}  // namespace hasten
