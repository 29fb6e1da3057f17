// File: hasten/data/context.h
// The position of a row or a batch, and a random key derived from it.
//
//   struct Noisy {
//     std::int64_t size() const { return 1000; }
//     at::Tensor get(std::int64_t index, const RowContext& context) const {
//       std::mt19937_64 random(context.key());
//       std::normal_distribution<double> noise;
//       return at::full({1}, static_cast<double>(index) + noise(random));
//     }
//   };
//
// A dataset's get() takes the context of its row as its last parameter if it needs it. A collator
// takes the context of the batch, or `std::span<const RowContext>`, the contexts of its rows. A
// choice that a collator makes for each row should depend only on the row's key: it is then the
// same with any batch size, number of workers and number of processes, and after resuming.
//
// The key of a row depends only on the seed, the epoch and the row: not on the batch size, the
// workers, the number of processes, or the process that reads it. The key of a batch does not
// depend on the workers, nor on the number of processes if batch_size counts the rows of one
// process (no split_batches). Different rows, batches, epochs and seeds have different keys, so
// keys need not depend on the process or the worker. A stream gets no key when it makes a row. It
// draws its random numbers in the process that reads it, which is rank 0 if rank 0 dispatches
// batches.
// Nothing throws. Thread rule: values.
#pragma once

#include <cstdint>

#include "hasten/base/detail/mix_key.h"

namespace hasten {

struct BatchContext {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // Counted from 0 in its epoch, over all processes.
  constexpr std::uint64_t key() const {
    return detail::mix_key(seed, static_cast<std::uint64_t>(epoch),
                           static_cast<std::uint64_t>(batch));
  }
};

struct RowContext {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t row = 0;  // Index in the dataset; in a stream the position in its epoch, from 0.
  constexpr std::uint64_t key() const {
    return detail::mix_key(~seed, static_cast<std::uint64_t>(epoch),
                           static_cast<std::uint64_t>(row));
  }
};

}  // namespace hasten
