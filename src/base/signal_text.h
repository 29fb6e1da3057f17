// File: base/signal_text.h (internal)
// Names a signal for messages.
//
//   const std::string text = signal_text(SIGTERM);  // "signal 15 (SIGTERM)"
//
// Thread rule: a pure function.
#pragma once

#include <cstring>
#include <string>

#include "hasten/base/text.h"

namespace hasten {

inline std::string signal_text(int number) {
  const char* const name = sigabbrev_np(number);  // Null for a real-time signal.
  return str("signal ", number, name ? str(" (SIG", name, ")") : "");
}

}  // namespace hasten
