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
  std::int64_t rows = 0, bytes = 0;               // The most rows that are known to fit, or 0.
  std::int64_t too_many = 0, too_many_bytes = 0;  // The fewest rows that are known not to fit.
  // False if the search was stopped before it found the largest number that fits.
  bool is_complete() const { return too_many - rows <= 1; }
};

// Expects that `rows` do not fit. `needed` returns the bytes that a number of rows needs. It is
// called about log2(rows) times. The search stops earlier if `should_continue` returns false.
inline FittingRows find_fitting_rows(
    std::int64_t rows, std::int64_t limit, const std::function<std::int64_t(std::int64_t)>& needed,
    const std::function<bool()>& should_continue = [] { return true; }) {
  FittingRows found{.too_many = rows};
  while (!found.is_complete() && should_continue()) {
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
