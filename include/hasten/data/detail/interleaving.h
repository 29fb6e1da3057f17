// File: hasten/data/detail/interleaving.h
// Determines how interleave_datasets (hasten/data/views.h and hasten/data/streams.h) chooses the
// next dataset.
//
//   InterleaveOptions options{.probabilities = {0.9, 0.1},
//                             .stopping_strategy = StoppingStrategy::all_exhausted};
//
// Throws UsageError "data.option" for probabilities that are not a distribution over the datasets,
// or are 0 for a dataset that must be exhausted. Thread rule: values.
// Source: datasets.interleave_datasets 5.2. Without probabilities the rows are the same; with them,
// the random numbers come from hasten's generator.
#pragma once

#include <cstdint>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/row_random.h"

namespace hasten {

enum class StoppingStrategy {
  first_exhausted,                    // Ends when the first dataset has no more rows.
  all_exhausted,                      // Repeats datasets until each one has been read once.
  all_exhausted_without_replacement,  // Reads each row once, and skips datasets that have ended.
};

struct InterleaveOptions {
  std::vector<double> probabilities = {};  // One per dataset. If empty, datasets take turns.
  std::uint64_t seed = 42;
  StoppingStrategy stopping_strategy = StoppingStrategy::first_exhausted;
};

namespace detail {

// Chooses one dataset after the other, and records which of them are exhausted.
class HASTEN_API SourceChooser {
 public:
  SourceChooser(std::size_t sources, const InterleaveOptions& options);

  void restart(std::int64_t epoch);
  // True if, by the strategy, there are no more rows.
  bool done() const;
  // Returns the dataset of the next row. Call it only if done() is false.
  std::size_t next();
  void exhaust(std::size_t source) { exhausted_[source] = true; }

 private:
  InterleaveOptions options_;
  std::vector<bool> exhausted_;
  std::size_t next_source_ = 0;  // Without probabilities.
  RowRandom random_{0};
};

// Returns the rows of the concatenation of datasets of these sizes, interleaved.
HASTEN_API std::vector<std::int64_t> interleaved_rows(const std::vector<std::int64_t>& sizes,
                                                      const InterleaveOptions& options);

}  // namespace detail

}  // namespace hasten
