// File: hasten/options/detail/exactness.h
// Says how a technique changes the numbers of a training run (docs/plan.md).
//
//   const auto exactness = from_name<Exactness>("other");
//   if (exactness > Exactness::rounding) std::cout << "choose the learning rate anew\n";
//
// Thread rule: constants.
#pragma once

#include <string_view>

#include "hasten/options/detail/names.h"

namespace hasten {

enum class Exactness {
  exact,     // Only the order of sums changes.
  rounding,  // Numbers are rounded more coarsely.
  other,     // Another algorithm: the learning rate and the schedule must be tuned again.
};

template <>
struct Names<Exactness> {
  static constexpr std::string_view text[] = {"exact", "rounding", "other"};
};

}  // namespace hasten
