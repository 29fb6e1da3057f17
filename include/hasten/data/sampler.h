// File: hasten/data/sampler.h
// The order of a dataset's rows in an epoch. It depends only on the number of rows, a seed and the
// epoch, so every process can compute any epoch's order again.
//
//   EpochOrder order(1000, {.shuffle = true, .seed = 42}, /*epoch=*/3);
//   std::span<const std::int64_t> batch = order.slice(first, count, scratch);
//
// The random order is the same as with Accelerate's SeedableRandomSampler, which the Hugging Face
// Trainer uses: torch's randperm with a CPU generator seeded with seed + epoch. With the same seed,
// both read the same rows.
//
// Other orders are functions for LoaderOptions::order:
//
//   auto loader = make_loader(dataset, {.batch_size = 8,
//                                       .order = length_grouped_order(lengths, /*batch_size=*/8)});
//   auto balanced = make_loader(dataset, {.order = weighted_order({.weights = weights})});
//
// They also depend only on the seed and the epoch, so processes share one order, and a loader
// resumes in the middle of it. Their random numbers come from a CPU generator of torch, seeded with
// seed + epoch.
// Throws UsageError "data.order" for an order that names a row that does not exist, for unusable
// weights, and for lengths or weights of another number of rows.
// Thread rule: many threads may read an EpochOrder, each with its own `scratch`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

// A user's own order: receives the number of rows, the seed and the epoch, and returns row numbers
// below `rows`. It may omit or repeat rows, but must return the same number of them in every epoch.
using OrderFunction = std::function<std::vector<std::int64_t>(std::int64_t rows, std::uint64_t seed,
                                                              std::int64_t epoch)>;

struct OrderOptions {
  bool shuffle = false;
  std::uint64_t seed = 42;
  OrderFunction custom = {};  // Instead of shuffle.
};

// Groups rows of similar length, which need little padding: the rows are permuted, divided into
// groups of min(rows / (4 batch_size), 50) batches (at least one), and each group is sorted by
// length, longest first. The longest row of all is the first one, so that memory runs out at once
// or never. `lengths` has one entry per row; `batch_size` counts the rows that belong together; in
// the Trainer, these are the rows of an optimizer step. Throws UsageError "data.order" if the
// dataset has a different number of rows.
// Source: get_length_grouped_indices of transformers 5.23, which returns the same order if it gets
// a generator with the same seed. The Hugging Face Trainer uses torch's default generator instead.
HASTEN_API OrderFunction length_grouped_order(std::vector<std::int64_t> lengths,
                                              std::int64_t batch_size);

struct WeightedRows {
  // One for each row, not negative; a row is drawn with a probability proportional to its weight.
  std::vector<double> weights = {};
  std::int64_t num_samples = 0;  // Rows of an epoch; 0 means one per weight.
  // If false, no row is drawn twice in an epoch, and num_samples rows must have a weight above 0.
  bool replacement = true;
};

// Draws rows by their weights, for example rare classes more often. Throws UsageError "data.order"
// for unusable weights, and if the dataset has a different number of rows.
// Source: torch.utils.data.WeightedRandomSampler, with the same rows for the same generator.
HASTEN_API OrderFunction weighted_order(WeightedRows rows);

class HASTEN_API EpochOrder {
 public:
  EpochOrder() = default;
  // Throws UsageError "data.order" if a custom order names a row that does not exist.
  EpochOrder(std::int64_t rows, const OrderOptions& options, std::int64_t epoch);

  std::int64_t size() const noexcept { return size_; }
  // Returns rows [first, first + count) of the order. A sequential order is not stored; its rows
  // are written to `scratch`.
  std::span<const std::int64_t> slice(std::int64_t first, std::int64_t count,
                                      std::vector<std::int64_t>& scratch) const;

 private:
  std::int64_t size_ = 0;
  at::Tensor random_;                 // Undefined unless shuffled.
  std::vector<std::int64_t> custom_;  // Empty unless custom.
};

}  // namespace hasten
