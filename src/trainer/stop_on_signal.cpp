#include "hasten/trainer/stop_on_signal.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// In milliseconds. A signal that arrives again within this time counts as the same signal.
constexpr std::int64_t kDebounceMilliseconds = 1000;

// The handler may run on another thread while the actions are restored, so this
// outlives every object.
struct HandledSignal {
  struct sigaction before {};
  std::atomic<std::int64_t> first_at{0};  // in milliseconds; 0 until it is received
};
std::array<HandledSignal, NSIG> handled_signals;
std::atomic<int> first_signal{0};
std::atomic<bool> handlers_in_use{false};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a handler may not wait for a lock");

std::int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::max<std::int64_t>(1, std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000);
}

// Schedulers repeat these signals until the process has ended. If a terminal is closed, both the
// shell and the kernel send SIGHUP.
bool may_be_repeated(int signal) {
  return signal == SIGTERM || signal == SIGHUP || signal == SIGUSR1 || signal == SIGUSR2;
}

// The handler of the signals. It makes only calls that are safe in a handler.
void handle_signal(int number) {
  const int error = errno;
  HandledSignal& signal = handled_signals[static_cast<std::size_t>(number)];
  const std::int64_t now = milliseconds_now();
  std::int64_t first_at = 0;
  if (signal.first_at.compare_exchange_strong(first_at, now)) {
    int none = 0;
    first_signal.compare_exchange_strong(none, number);
  } else if (!may_be_repeated(number) && now - first_at > kDebounceMilliseconds) {
    sigaction(number, &signal.before, nullptr);
    raise(number);  // delivered when this handler returns
  }
  errno = error;
}

UsageError bad_signal(int number) {
  return {"trainer.bad-signal",
          {.what = "StopOnSignal",
           .got = str("signal ", number),
           .expected = "a signal that a process may handle",
           .hint = "SIGTERM, SIGINT, SIGHUP and SIGUSR1 are usual"}};
}

}  // namespace

StopOnSignal::StopOnSignal(const std::vector<int>& signals) {
  for (const int signal : signals) {
    if (signal <= 0 || signal >= NSIG || signal == SIGKILL || signal == SIGSTOP)
      throw bad_signal(signal);
  }
  if (handlers_in_use.exchange(true)) {
    throw UsageError("trainer.signals-in-use",
                     {.what = "StopOnSignal",
                      .got = "a second one while another has installed its handlers",
                      .expected = "one at a time",
                      .hint = "pass the same object to each Trainer, or call restore_handlers() on "
                              "the first one"});
  }
  first_signal = 0;
  for (const int signal : signals) install(signal);
}

StopOnSignal::~StopOnSignal() { restore_handlers(); }

void StopOnSignal::install(int signal) {
  HandledSignal& handled = handled_signals[static_cast<std::size_t>(signal)];
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  if (std::find(installed_.begin(), installed_.end(), signal) != installed_.end()) return;
  handled.before = action;
  handled.first_at = 0;
  action = {};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;  // interrupted reads and writes are restarted
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
  installed_.push_back(signal);
}

void StopOnSignal::restore_handlers() {
  if (!owns_handlers_) return;
  for (const int signal : installed_)
    sigaction(signal, &handled_signals[static_cast<std::size_t>(signal)].before, nullptr);
  received_ = first_signal;
  owns_handlers_ = false;
  handlers_in_use = false;
}

int StopOnSignal::received() const { return owns_handlers_ ? first_signal.load() : received_; }

void StopOnSignal::request_stop(TrainerControl& control) const {
  const int signal = received();
  if (signal == 0) return;
  control.should_training_stop = true;
  control.stop_signal = signal;
}

}  // namespace hasten
