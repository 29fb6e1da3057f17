// File: hasten/data/batch_info.h
// The facts about a batch besides its data: how many of its rows count, and whether it is the
// last. It travels with the batch, from a loader through a prepared loader to the loop.
//
//   for (const auto& [batch, info] : with_info(loader)) {
//     std::cout << info.real_rows << " of " << info.rows << " rows\n";
//   }
//
// Thread rule: that of the loader. The references are valid until the iterator advances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

namespace hasten {

// The place of a batch in an optimizer step of a run with elastic ranks
// (AcceleratorOptions::elastic_ranks).
struct ElasticPlace {
  std::int64_t virtual_rank = 0;  // the rank that the batch belongs to
  std::int64_t step = 0;          // its step of all virtual ranks in the epoch, from 0
  std::int64_t position = 0;      // its number in this process's part of the window, from 0
  bool begins_turn = false;       // the first batch of its virtual rank in the window
  bool ends_turn = false;         // the last one
  bool ends_window = false;       // the last batch of this process in the window
  std::uint64_t key = 0;          // follows from the seed of the loader, the epoch and the rows
};

struct BatchInfo {
  // The rows of this process's batch; -1: not known.
  std::int64_t rows = -1;
  // The rows that no other process and no earlier batch has had, so that neither filling up a last
  // step nor padding counts; -1: all.
  std::int64_t real_rows = -1;
  // True if no process has a batch after this one.
  bool is_last = false;
  // True if rows of this batch, or of another process's in the same step, may not count.
  bool may_be_padded = false;
  // Set in a training pass of a loader whose Accelerator has elastic ranks.
  std::optional<ElasticPlace> elastic = {};
};

// A batch and what is known of it.
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

// Iterates over a loader of hasten's, or a prepared one, with what is known of each batch.
template <class Loader>
LoaderWithInfo<Loader> with_info(Loader& loader) {
  return LoaderWithInfo<Loader>(loader);
}

}  // namespace hasten
