// File: base/start_thread.h (internal)
// Starts a thread that takes no signals. The result is not joinable where the system has no thread
// left, which may pass: the caller decides whether it tries again, goes on without it or throws.
//
//   std::thread thread = start_thread([this] { run(); });
//   if (!thread.joinable()) ...
//
// Throws nothing of its own. Thread rule: any thread.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/without_signals.h"

namespace hasten {

template <typename Work>
std::thread start_thread(Work work) {
  const WithoutSignals without;
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error&) {
    return {};
  }
}

}  // namespace hasten
