// File: base/start_thread.h (internal)
// Starts a thread in which all signals are blocked. The result is not joinable if the system lacks
// threads, which may be temporary: the caller tries again, continues without it or throws.
//
//   std::thread thread = start_thread([this] { run(); });
//   if (!thread.joinable()) try_again_later();
//
// Throws nothing of its own. Thread rule: any thread.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/signal_blocker.h"

namespace hasten {

template <typename Work>
std::thread start_thread(Work work) {
  const SignalBlocker blocker;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace hasten
