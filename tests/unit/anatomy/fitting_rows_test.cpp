#include "anatomy/fitting_rows.h"

#include <doctest/doctest.h>

namespace anatomy_fitting_rows_test {

using namespace hasten::anatomy;

TEST_CASE("fitting rows: the most rows that fit are found with few calls") {
  for (const std::int64_t limit : {50, 100, 777, 1000, 6399}) {
    CAPTURE(limit);
    int calls = 0;
    const FittingRows found = find_fitting_rows(64, limit, [&](std::int64_t rows) {
      ++calls;
      return 100 * rows;
    });
    CHECK(found.is_complete());
    CHECK(found.rows == limit / 100);
    CHECK(found.bytes == 100 * found.rows);
    CHECK(found.too_many == found.rows + 1);
    CHECK(calls <= 6);
  }
}

TEST_CASE("fitting rows: a stopped search reports only the numbers of rows that it tried") {
  int left = 1;
  const FittingRows found = find_fitting_rows(
      64, 100, [](std::int64_t rows) { return 100 * rows; }, [&] { return left-- > 0; });
  CHECK_FALSE(found.is_complete());
  CHECK(found.rows == 0);
  CHECK(found.too_many == 32);
  CHECK(found.too_many_bytes == 3200);
  CHECK(find_fitting_rows(1, 100, [](std::int64_t) { return std::int64_t{1}; }).is_complete());
}

}  // namespace anatomy_fitting_rows_test
