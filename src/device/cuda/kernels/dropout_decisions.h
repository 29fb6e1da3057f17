// File: device/cuda/kernels/dropout_decisions.h (internal)
// The decisions of dropout on a GPU: the same function of (seed, row, column) as on the CPU
// (ops/kernels/kernels.h), so that a seed drops the same elements on both.
//
//   float factors[4];
//   decisions.factors(row, column, factors);      // for 4 columns from a multiple of 4
#pragma once

#include "device/cuda/kernels/numbers.h"

namespace hasten::gpu {

struct DropoutDecisions {
  std::uint64_t seed = 0;
  // An element whose 16 random bits are below this is dropped. 0 drops nothing.
  std::uint32_t threshold = 0;
  // Kept elements are multiplied by this.
  float scale = 1.0f;
  // Null, or the address of the seed on the GPU, which a CUDA graph reads in each replay.
  const std::uint64_t* seed_at = nullptr;

  // Sets the factors of kCount (1 or 4) columns from `column`, each 0 or `scale`.
  template <int kCount>
  HASTEN_GPU_CODE void factors(Index row, Index column, float (&out)[kCount]) const {
    static_assert(kCount == 1 || kCount == 4);
    if (threshold == 0) return set_ones(out);
    const Words words = words_at(row, column);
    set_factors((column & 64) != 0 ? words.second : words.first, static_cast<int>(column & 3), out);
  }

  // Sets the factors of four columns from `column`, which is in the first half of its 128 columns,
  // and of the four columns that are 64 further on. Both come from the same random words.
  HASTEN_GPU_CODE void factors(Index row, Index column, float (&first)[4],
                               float (&second)[4]) const {
    if (threshold == 0) {
      set_ones(first);
      set_ones(second);
      return;
    }
    const Words words = words_at(row, column);
    set_factors(words.first, 0, first);
    set_factors(words.second, 0, second);
  }

 private:
  struct Words {
    std::uint64_t first, second;
  };

  template <int kCount>
  static HASTEN_GPU_CODE void set_ones(float (&out)[kCount]) {
    for (float& factor : out) factor = 1.0f;
  }
  template <int kCount>
  HASTEN_GPU_CODE void set_factors(std::uint64_t words, int place, float (&out)[kCount]) const {
    for (int i = 0; i < kCount; ++i) {
      const auto word = static_cast<std::uint32_t>(words >> (16 * (place + i))) & 0xFFFFu;
      out[i] = word >= threshold ? scale : 0.0f;
    }
  }

  // The random words of the four columns around `column` and of the four in the other half of its
  // 128 columns, by Philox 4x32-10.
  HASTEN_GPU_CODE Words words_at(Index row, Index column) const {
    const auto counter = static_cast<std::uint32_t>((column >> 7) * 16 + ((column & 63) >> 2));
    std::uint32_t c0 = counter, c1 = static_cast<std::uint32_t>(row),
                  c2 = static_cast<std::uint32_t>(static_cast<std::uint64_t>(row) >> 32), c3 = 0;
    const std::uint64_t key = seed_at != nullptr ? *seed_at : seed;
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = static_cast<std::uint64_t>(c0) * 0xD2511F53u,
                          b = static_cast<std::uint64_t>(c2) * 0xCD9E8D57u;
      c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
      c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(b);
      c3 = static_cast<std::uint32_t>(a);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0 | static_cast<std::uint64_t>(c1) << 32, c2 | static_cast<std::uint64_t>(c3) << 32};
  }
};

}  // namespace hasten::gpu
