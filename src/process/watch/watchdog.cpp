#include "process/watch/watchdog.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"
#include "launch/exit_codes.h"
#include "process/consensus/job_store.h"
#include "process/watch/bounded_call.h"
#include "process/watch/thread_stack.h"
#include "process/watch/waiting_time.h"

namespace hasten {
namespace {

using std::chrono::milliseconds;
using Clock = CallLog::Clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// The time between two checks of the clock.
constexpr milliseconds kClockInterval{100};
// The time between two checks of the store for an exchange of reports.
constexpr milliseconds kStoreInterval{250};
// The time until a lost store is tried again.
constexpr milliseconds kReconnectInterval{10000};
// The time limit for a thread to answer with its stack.
constexpr milliseconds kStackTimeout{100};
// The limits for printing the report and for flushing the program's output.
constexpr milliseconds kPrintTimeout{500}, kFlushTimeout{150};
// Before its end, the rank that prints waits for the other ranks to stop their threads, and the
// others wait for that rank to end first.
constexpr milliseconds kWaitOfPrintingRank{100}, kWaitOfOtherRanks{400};
// The limit for the last answer of the store when a group ends.
constexpr milliseconds kLastAnswerTimeout{1000};

// Returns false for an empty stack, and for the stack of a thread that only waits for work of
// autograd.
bool is_informative(const std::vector<std::string>& stack) {
  for (const std::string& line : stack) {
    if (line.find("ReadyQueue::pop") != line.npos) return false;
  }
  return !stack.empty();
}

// Unlike write_all() of a descriptor, it waits if standard error is non-blocking and full, because
// the process ends after the report.
void write_to_standard_error(std::string_view left) {
  while (!left.empty()) {
    const ssize_t written = write(STDERR_FILENO, left.data(), left.size());
    if (written > 0) {
      left.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd file{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      poll(&file, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

void flush_streams() {
  std::cout.flush();
  std::fflush(nullptr);
}

}  // namespace

class Watchdog::State {
 public:
  State(std::shared_ptr<CallLog> calls, const RankOptions& options)
      : calls_(std::move(calls)), options_(options), creator_thread_(gettid()) {}

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  // Returns whether the thread of exchange_reports() has ended, or ends within kLastAnswerTimeout.
  bool wait_for_exchange_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLastAnswerTimeout, [&] { return exchange_ended_; });
  }

  // Watches the clock until the group ends or this function ends the process.
  void watch() {
    WaitingTime waiting;
    std::unique_lock lock(mutex_);
    while (
        !changed_.wait_for(lock, kClockInterval, [&] { return stopped_ || exchange_requested_; })) {
      is_late_ = waiting.of(calls_->oldest_call_start()) >= options_.limit;
      exchange_requested_ = exchange_requested_ || is_late_;
    }
    if (stopped_) return;
    changed_.notify_all();
    changed_.wait_for(lock, times_.own_report, [&] { return stopped_ || report_.has_value(); });
    if (stopped_) return;
    const LateRankReport report =
        report_ ? *report_ : report_without_others(own_record(), options_);
    lock.unlock();
    end(report);
  }

  // Exchanges reports with the other ranks through its own clone of the store. It tries a lost
  // store again, because the store's process may only have been stopped for a while.
  void exchange_reports(const StorePointer& group_store) {
    do {
      try {
        const StorePointer store = group_store->clone();
        if (wait_for_exchange(*store)) set_report(common_report(*store));
      } catch (const std::exception&) {
        // Without a store the other ranks cannot be asked; watch() continues without them.
      }
    } while (should_retry_store(*group_store));
    const std::lock_guard lock(mutex_);
    exchange_ended_ = true;
    changed_.notify_all();
  }

 private:
  // Returns whether the store prints nothing when its server has ended. A c10d::TCPStore prints
  // errors.
  static bool fails_quietly(const c10d::Store& store) {
    return dynamic_cast<const JobStore*>(&store) != nullptr;
  }

  bool should_retry_store(const c10d::Store& store) {
    if (!fails_quietly(store)) return false;
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, kReconnectInterval,
                              [&] { return stopped_ || exchange_requested_; });
  }

  // Waits until an exchange of reports is to begin. Returns false if the group ends before that. If
  // there are many ranks, those that are busy check the store less often.
  bool wait_for_exchange(c10d::Store& store) {
    const bool always = fails_quietly(store);
    const milliseconds while_busy = std::max(kStoreInterval, milliseconds(options_.size));
    const ReportExchange exchange(store, options_);
    auto next = Clock::now() + kStoreInterval;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_until(lock, next, [&] { return stopped_ || exchange_requested_; })) {
      lock.unlock();
      const bool is_quiet = Clock::now() - calls_->last_activity() >= options_.limit / 2;
      const bool asked = (always || is_quiet) && exchange.has_begun();
      next = Clock::now() + (is_quiet ? kStoreInterval : while_busy);
      lock.lock();
      if (!asked) continue;
      exchange_requested_ = true;
      changed_.notify_all();
    }
    return !stopped_;
  }

  LateRankReport common_report(c10d::Store& store) {
    std::unique_lock lock(mutex_);
    const bool is_late = is_late_;
    lock.unlock();
    return ReportExchange(store, options_).report(is_late, [&] { return own_record(); });
  }

  RankRecord own_record() const {
    const CallLog::Snapshot snapshot = calls_->snapshot();
    std::vector<std::string> stack;
    // The thread of the latest call should make the next one. The exception is a thread of
    // autograd, which only makes calls in between.
    for (const pid_t thread : {snapshot.thread, creator_thread_, getpid()}) {
      stack = stack_of(thread, kStackTimeout);
      if (is_informative(stack)) break;
    }
    return RankRecord::of(snapshot, std::move(stack));
  }

  void set_report(const LateRankReport& report) {
    const std::lock_guard lock(mutex_);
    report_ = report;
    changed_.notify_all();
  }

  // The rank that prints ends first. Its end must not become an error in the other ranks' programs,
  // so it gives these ranks time to stop their threads. The rest of each process continues, because
  // it may serve the store.
  [[noreturn]] void end(const LateRankReport& report) const {
    const bool prints = report.printed_by == options_.rank;
    if (prints)
      completes_within(kPrintTimeout, [text = report.text] { write_to_standard_error(text); });
    completes_within(kFlushTimeout, flush_streams);  // the hanging thread may hold a stream's lock
    const auto threads = {calls_->snapshot().thread, creator_thread_, getpid()};
    for (const pid_t thread : threads) {
      if (!prints) park_thread(thread);
    }
    std::this_thread::sleep_for(prints ? kWaitOfPrintingRank : kWaitOfOtherRanks + times_.pause);
    _exit(kLateRankCode);
  }

  const std::shared_ptr<CallLog> calls_;
  const RankOptions options_;
  const ReportTimes times_ = ReportTimes::of(options_.size);
  const pid_t creator_thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool is_late_ = false;             // a collective of this rank has taken too long
  bool exchange_requested_ = false;  // a collective of any rank has taken too long
  bool exchange_ended_ = false;      // the thread of exchange_reports() no longer uses the store
  std::optional<LateRankReport> report_;
};

Watchdog::Watchdog(StorePointer store, std::shared_ptr<CallLog> calls, const RankOptions& options)
    : state_(std::make_shared<State>(std::move(calls), options)) {
  preload_backtrace();
  clock_thread_ = start_thread([state = state_] { state->watch(); });
  exchange_thread_ =
      start_thread([state = state_, store = std::move(store)] { state->exchange_reports(store); });
  if (clock_thread_.joinable() && exchange_thread_.joinable()) return;
  end_threads();
  throw_no_thread("io.thread", "watches for ranks that hang");
}

Watchdog::~Watchdog() { end_threads(); }

void Watchdog::end_threads() {
  state_->stop();
  if (clock_thread_.joinable()) clock_thread_.join();
  if (!exchange_thread_.joinable()) return;
  if (state_->wait_for_exchange_end()) {
    exchange_thread_.join();
  } else {
    exchange_thread_.detach();
  }
}

}  // namespace hasten
