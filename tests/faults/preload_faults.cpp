// Makes calls of any program fail. The program needs this library with watched_calls.cpp in
// LD_PRELOAD.
//
// HASTEN_FAULT="CALL KIND FOLDER REPORT" in its environment disturbs one of the calls that change
// FOLDER. KIND is kill, io, full, read_only, short, stays_full, slow or none. When a process
// arrives at the call, it creates the file REPORT.
//
// The signal SIGRTMIN makes the next allocation of a tensor in the main thread fail once, so
// LibTorch throws an exception wherever the program computes.
#undef _FORTIFY_SOURCE  // it would define some of the functions below

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

#include "faults/real_call.h"
#include "faults/watched_calls.h"

namespace {

// The kernel may run the handler in any thread.
constinit std::atomic<bool> next_allocation_fails{false};
static_assert(std::atomic<bool>::is_always_lock_free);

[[gnu::constructor]] void handle_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) { next_allocation_fails = true; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);
}

Fault parse_fault(const std::string& name) {
  if (name == "io") return Fault::io_error;
  if (name == "full") return Fault::disk_full;
  if (name == "read_only") return Fault::read_only;
  if (name == "short") return Fault::short_write;
  if (name == "stays_full") return Fault::stays_full;
  if (name == "slow") return Fault::slow_disk;
  if (name == "none") return Fault::none;
  return Fault::kill;
}

[[gnu::constructor]] void watch_from_environment() {
  const char* const text = std::getenv("HASTEN_FAULT");
  if (text == nullptr) return;
  std::istringstream words(text);
  long call = kNever;
  std::string kind, folder, report;
  if (words >> call >> kind >> folder >> report)
    watch_calls(folder, call, parse_fault(kind), report);
}

}  // namespace

// LibTorch allocates the memory of every tensor on the CPU with this call.
#pragma GCC visibility push(default)
extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  static const auto real = real_call<int (*)(void**, size_t, size_t)>("posix_memalign");
  if (next_allocation_fails && ::getpid() == ::gettid() && next_allocation_fails.exchange(false))
    return ENOMEM;
  return real(memory, alignment, size);
}
#pragma GCC visibility pop
