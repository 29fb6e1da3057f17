// File: hasten/data/sampler.h
// The order in which the rows of a dataset come in an epoch: a function of the number of rows, a
// seed and the epoch, and of nothing else, so that any epoch can be had again, in any process.
//
//   EpochOrder order(rows, {.shuffle = true, .seed = 42}, /*epoch=*/3);
//   std::span<const std::int64_t> batch = order.slice(first, count, scratch);
//
// The random order is that of accelerate's SeedableRandomSampler, which the Trainer of transformers
// uses: torch's randperm with a CPU generator seeded with seed + epoch. With the same seed, hasten
// and they see the same rows.
// Thread rule: an EpochOrder may be read by many threads, each with its own scratch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hasten {

// An order of the user's own: gets rows, seed and epoch; gives row numbers, each below `rows`. It
// may leave rows out or give some twice, as long as every epoch has the same number of them.
using OrderFunction = std::function<std::vector<std::int64_t>(std::int64_t rows, std::uint64_t seed,
                                                              std::int64_t epoch)>;

struct OrderOptions {
  bool shuffle = false;
  std::uint64_t seed = 42;
  OrderFunction custom = {};  // instead of shuffle
};

class EpochOrder {
 public:
  EpochOrder() = default;
  // UsageError "data.order" if a custom order names a row that is not there.
  EpochOrder(std::int64_t rows, const OrderOptions& options, std::int64_t epoch);

  std::int64_t size() const noexcept { return size_; }
  // Rows [first, first + count) of the order. `scratch` holds them where they are not stored.
  std::span<const std::int64_t> slice(std::int64_t first, std::int64_t count,
                                      std::vector<std::int64_t>& scratch) const;

 private:
  std::int64_t size_ = 0;
  at::Tensor random_;                 // undefined: not this one
  std::vector<std::int64_t> custom_;  // empty: not this one
};

}  // namespace hasten
