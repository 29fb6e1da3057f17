// File: anatomy/fitting_rows.h (internal)
// Finds how many rows of a batch fit a limit of memory, by bisection.
//
//   const FittingRows found = find_fitting_rows(64, limit, [&](std::int64_t rows) { return needed(rows); });
//   found.rows;             // the most that fit; 0: not even one
//
// Thread rule: that of `needed`.
#pragma once

#include <cstdint>
#include <functional>

namespace hasten::anatomy {

struct FittingRows {
  std::int64_t rows = 0, bytes = 0;  // The most that are known to fit; 0: none is known.
  std::int64_t too_many = 0, too_many_bytes = 0;  // The fewest that are known not to fit.
  // False if the search was stopped before it knew the most that fit.
  bool is_complete() const { return too_many - rows <= 1; }
};

// `rows` do not fit. `needed` returns the bytes of some rows; it is called as long as `goes_on`
// returns true, about log2 of the rows times.
inline FittingRows find_fitting_rows(
    std::int64_t rows, std::int64_t limit, const std::function<std::int64_t(std::int64_t)>& needed,
    const std::function<bool()>& goes_on = [] { return true; }) {
  FittingRows found{.too_many = rows};
  while (!found.is_complete() && goes_on()) {
    const std::int64_t middle = found.rows + (found.too_many - found.rows) / 2;
    const std::int64_t bytes = needed(middle);
    if (bytes <= limit) {
      found.rows = middle;
      found.bytes = bytes;
    } else {
      found.too_many = middle;
      found.too_many_bytes = bytes;
    }
  }
  return found;
}

}  // namespace hasten::anatomy
