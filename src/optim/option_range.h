// File: optim/option_range.h (internal)
// Checks of the options of an optimizer.
//
//   require_option(eps() >= 0, "Lion", "eps", eps(), "at least 0");
//   require_betas("Lion", betas());
//
// Throws ConfigError "optim.out-of-range". Thread rule: these functions have no state.
#pragma once

#include <string>
#include <tuple>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

template <class T>
void require_option(bool holds, const char* optimizer, const char* option, const T& value,
                    const char* expected) {
  if (holds) return;
  throw ConfigError(
      "optim.out-of-range",
      {.what = str(optimizer, ", option ", option), .got = str(value), .expected = expected});
}

// The comparison is written so that NaN fails too.
inline void require_at_least_0(const char* optimizer, const char* option, double value) {
  require_option(value >= 0, optimizer, option, value, "at least 0");
}

inline void require_beta(const char* optimizer, const char* option, double value) {
  require_option(value >= 0 && value < 1, optimizer, option, value, "at least 0 and below 1");
}

inline void require_betas(const char* optimizer, const std::tuple<double, double>& betas) {
  require_beta(optimizer, "beta1", std::get<0>(betas));
  require_beta(optimizer, "beta2", std::get<1>(betas));
}

}  // namespace hasten
