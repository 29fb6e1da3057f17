// File: base/signal_text.h (internal)
// How messages name a signal.
//
//   signal_text(SIGTERM)   // "signal 15 (SIGTERM)"
//
// Thread rule: a pure function.
#pragma once

#include <cstring>
#include <string>

#include "hasten/base/text.h"

namespace hasten {

inline std::string signal_text(int number) {
  const char* const name = sigabbrev_np(number);  // a real-time signal has none
  return str("signal ", number, name ? str(" (SIG", name, ")") : "");
}

}  // namespace hasten
