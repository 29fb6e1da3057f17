#include "ops/codebook.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <c10/util/Exception.h>

namespace hasten::ops {
namespace {

// Returns the middles of equal parts of [0.1, 1], rounded as by torch.linspace on a CPU with fused
// products and sums.
std::vector<float> linear_part(int parts) {
  const float step = (1.0f - 0.1f) / static_cast<float>(parts);
  std::vector<float> limits;
  for (int k = 0; k <= parts; ++k) {
    const double low = static_cast<double>(0.1f) + static_cast<double>(step) * k;
    const double high = 1.0 - static_cast<double>(step) * (parts - k);
    limits.push_back(static_cast<float>(k < (parts + 1) / 2 ? low : high));
  }
  std::vector<float> middles;
  for (int k = 0; k < parts; ++k) middles.push_back((limits[k] + limits[k + 1]) / 2.0f);
  return middles;
}

std::vector<float> dynamic_map(bool has_sign) {
  std::vector<float> numbers = {0.0f, 1.0f};
  for (int power = 0; power < 7; ++power) {
    const auto scale = static_cast<float>(std::pow(10.0, power - 6));
    for (const float middle : linear_part(1 << (has_sign ? power : power + 1))) {
      numbers.push_back(scale * middle);
      if (has_sign) numbers.push_back(-(scale * middle));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// Returns the smallest number that is nearer to `high` than to `low`.
float first_nearer(float low, float high) {
  const auto is_nearer = [&](float x) { return std::fabs(x - high) < std::fabs(x - low); };
  float x = low + (high - low) / 2;
  while (is_nearer(x)) x = std::nextafter(x, low);
  while (!is_nearer(x)) x = std::nextafter(x, high);
  return x;
}

float magnitude_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Makes the entry for the numbers of one sign with magnitudes in this range of bits.
template <class CodeOf>
std::int32_t bucket_entry(std::uint32_t begin, std::uint32_t end, bool is_negative,
                          CodeOf code_of) {
  const auto code = [&](std::uint32_t bits) {
    return code_of(is_negative ? -magnitude_of(bits) : magnitude_of(bits));
  };
  const std::int32_t first = code(begin);
  std::int32_t limit = Codebook::kNoLimit;
  if (code(end) != first) {
    std::uint32_t low = begin, high = end;  // the code of `high` differs from the first one
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (code(middle) == first ? low : high) = middle;
    }
    TORCH_INTERNAL_ASSERT(code(end) == first + (is_negative ? -1 : 1) && high >> 16 == end >> 16);
    limit = static_cast<std::int32_t>(high & 0xFFFFu);
  }
  return first << Codebook::kLimitBits | limit;
}

Codebook make_codebook(bool has_sign) {
  const std::vector<float> numbers = dynamic_map(has_sign);
  Codebook book;
  std::copy(numbers.begin(), numbers.end(), book.value);
  for (int code = 0; code < 255; ++code)
    book.next[code] = first_nearer(numbers[code], numbers[code + 1]);
  book.next[255] = std::numeric_limits<float>::infinity();
  const auto code_of = [&](float x) {
    return static_cast<std::int32_t>(std::upper_bound(book.next, book.next + 255, x) - book.next);
  };
  for (std::int32_t i = 0; i < Codebook::kBuckets; ++i) {
    const auto begin = static_cast<std::uint32_t>(i + Codebook::kFirstBucket) << 16;
    // The first bucket also has all smaller numbers. No finite number is above 1.
    const std::uint32_t from = i == 0 ? 0 : begin;
    const std::uint32_t end = i + 1 == Codebook::kBuckets ? begin : begin + 0xFFFFu;
    book.bucket[i] = bucket_entry(from, end, true, code_of);
    book.bucket[Codebook::kBuckets + i] = bucket_entry(from, end, false, code_of);
  }
  return book;
}

}  // namespace

const Codebook& signed_codebook() {
  static const Codebook book = make_codebook(true);
  return book;
}

const Codebook& unsigned_codebook() {
  static const Codebook book = make_codebook(false);
  return book;
}

}  // namespace hasten::ops
