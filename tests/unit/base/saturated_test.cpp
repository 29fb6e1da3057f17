#include "base/saturated.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace base_saturated_test {

using namespace hasten;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST_CASE("saturated: a number that does not fit becomes the nearest limit") {
  CHECK(saturated_count(7.9) == 7);
  CHECK(saturated_count(-7.9) == -7);
  CHECK(saturated_count(0x1p62) == std::int64_t{1} << 62);
  CHECK(saturated_count(0x1p63) == kMost);
  CHECK(saturated_count(1e19) == kMost);
  CHECK(saturated_count(HUGE_VAL) == kMost);
  CHECK(saturated_count(-1e19) == std::numeric_limits<std::int64_t>::min());
  CHECK(saturated_count(std::nan("")) == 0);
}

TEST_CASE("saturated: a product that does not fit becomes the largest number") {
  CHECK(saturated_product(6, 7) == 42);
  CHECK(saturated_product(0, kMost) == 0);
  CHECK(saturated_product(kMost, 0) == 0);
  CHECK(saturated_product(kMost, 1) == kMost);
  CHECK(saturated_product(kMost / 2 + 1, 2) == kMost);
}

TEST_CASE("saturated: a quotient is rounded up without an overflow") {
  CHECK(quotient_rounded_up(0, 4) == 0);
  CHECK(quotient_rounded_up(8, 4) == 2);
  CHECK(quotient_rounded_up(9, 4) == 3);
  CHECK(quotient_rounded_up(kMost, 2) == kMost / 2 + 1);
  CHECK(quotient_rounded_up(1, kMost) == 1);
}

}  // namespace base_saturated_test
