// File: hasten/data/context.h
// What a row or a batch may want to know about where it stands: the keys of its randomness.
//
//   Row get(std::int64_t index, const RowContext& context) {
//     std::mt19937_64 random(context.key());
//     ...
//
// A row draws the same numbers in the same epoch, whatever the batch size, the workers, the number
// of processes and which of them reads it; a batch, whatever the workers and, as long as batch_size
// is that of a process (no split_batches), the number of processes. No two rows, batches, epochs or
// seeds share a stream, so processes and workers differ without being named in the key. A stream of
// rows draws in the process that reads it; rank 0 where it dispatches.
// A dataset's get() and a collator's call take a context as their last argument or not, as they
// like.
// Thread rule: values.
#pragma once

#include <cstdint>

namespace hasten {

namespace detail {
// Mixes the numbers so that neighbours have nothing in common (the finalizer of SplitMix64, applied
// in turn).
constexpr std::uint64_t mix_key(std::uint64_t seed, std::uint64_t epoch, std::uint64_t number) {
  std::uint64_t key = 0;
  for (const std::uint64_t part : {seed, epoch, number}) {
    key += part + 0x9e3779b97f4a7c15u;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
    key = (key ^ key >> 27) * 0x94d049bb133111ebu;
    key ^= key >> 31;
  }
  return key;
}
}  // namespace detail

struct BatchContext {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t batch = 0;  // of all processes' in its epoch, from 0
  constexpr std::uint64_t key() const {
    return detail::mix_key(seed, static_cast<std::uint64_t>(epoch),
                           static_cast<std::uint64_t>(batch));
  }
};

struct RowContext {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t row = 0;  // in its dataset, from 0
  constexpr std::uint64_t key() const {
    return detail::mix_key(~seed, static_cast<std::uint64_t>(epoch),
                           static_cast<std::uint64_t>(row));
  }
};

}  // namespace hasten
