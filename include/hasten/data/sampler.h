// File: hasten/data/sampler.h
// The order of a dataset's rows in an epoch. It depends only on the number of rows, a seed and the
// epoch, so every process can compute any epoch's order again.
//
//   EpochOrder order(1000, {.shuffle = true, .seed = 42}, /*epoch=*/3);
//   std::span<const std::int64_t> batch = order.slice(first, count, scratch);
//
// The random order is that of Accelerate's SeedableRandomSampler, which Hugging Face Trainer uses:
// torch's randperm with a CPU generator seeded with seed + epoch. With the same seed both read the
// same rows.
// Thread rule: many threads may read an EpochOrder, each with a `scratch` of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hasten {

// A user's own order: receives the number of rows, the seed and the epoch, and returns row numbers
// below `rows`. It may omit or repeat rows, but must return equally many in every epoch.
using OrderFunction = std::function<std::vector<std::int64_t>(std::int64_t rows, std::uint64_t seed,
                                                              std::int64_t epoch)>;

struct OrderOptions {
  bool shuffle = false;
  std::uint64_t seed = 42;
  OrderFunction custom = {};  // Instead of shuffle.
};

class EpochOrder {
 public:
  EpochOrder() = default;
  // Throws UsageError "data.order" if a custom order names a row that does not exist.
  EpochOrder(std::int64_t rows, const OrderOptions& options, std::int64_t epoch);

  std::int64_t size() const noexcept { return size_; }
  // Rows [first, first + count) of the order. A sequential order is not stored; its rows are
  // written to `scratch`.
  std::span<const std::int64_t> slice(std::int64_t first, std::int64_t count,
                                      std::vector<std::int64_t>& scratch) const;

 private:
  std::int64_t size_ = 0;
  at::Tensor random_;                 // Undefined unless shuffled.
  std::vector<std::int64_t> custom_;  // Empty unless custom.
};

}  // namespace hasten
