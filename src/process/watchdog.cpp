#include "process/watchdog.h"

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

#include "base/without_signals.h"
#include "launch/exit_codes.h"
#include "process/bounded_call.h"
#include "process/job_store.h"
#include "process/thread_stack.h"
#include "process/waiting_time.h"

namespace hasten {
namespace {

using std::chrono::milliseconds;
using Clock = CallLog::Clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

// The time between two checks of the clock.
constexpr milliseconds kLook{100};
// The time between two checks of the store for an exchange of reports.
constexpr milliseconds kListen{250};
// The time until a lost store is tried again.
constexpr milliseconds kConnectAgain{10000};
// The limit for a thread to answer with its stack.
constexpr milliseconds kStack{100};
// The limits for printing the report and for flushing the program's output.
constexpr milliseconds kToPrint{500}, kToFlush{150};
// Before its end, the rank that prints waits for the other ranks to stop their threads, and the
// others wait for that rank to end first.
constexpr milliseconds kForTheOthers{100}, kAfterTheCause{400};
// The limit for the last answer of the store when a group ends.
constexpr milliseconds kLastAnswer{1000};

// False for an empty stack, and for that of a thread that only waits for work of autograd.
bool says_something(const std::vector<std::string>& stack) {
  for (const std::string& line : stack) {
    if (line.find("ReadyQueue::pop") != line.npos) return false;
  }
  return !stack.empty();
}

void write_all(std::string_view left) {
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

class Watchdog::Post {
 public:
  Post(std::shared_ptr<CallLog> calls, const WatchdogOptions& options)
      : calls_(std::move(calls)), options_(options), formed_by_(gettid()) {}

  void stop() {
    const std::lock_guard lock(turn_);
    stopped_ = true;
    changed_.notify_all();
  }
  // Whether the thread of talk() has ended, or ends within kLastAnswer.
  bool has_fallen_silent() {
    std::unique_lock lock(turn_);
    return changed_.wait_for(lock, kLastAnswer, [&] { return silent_; });
  }

  // Watches the clock until the group ends or this function ends the process.
  void watch() {
    WaitingTime waiting;
    std::unique_lock lock(turn_);
    while (!changed_.wait_for(lock, kLook, [&] { return stopped_ || asked_; })) {
      late_ = waiting.of(calls_->waits_since()) >= options_.limit;
      asked_ = asked_ || late_;
    }
    if (stopped_) return;
    changed_.notify_all();
    changed_.wait_for(lock, times_.alone, [&] { return stopped_ || report_.has_value(); });
    if (stopped_) return;
    const LateReport report = report_ ? *report_ : report_without_others(own_record(), options_);
    lock.unlock();
    end(report);
  }

  // Exchanges reports with the other ranks through its own clone of the store. A lost store is
  // tried again, because its process may only have been stopped for a while.
  void talk(const StorePointer& of_group) {
    do {
      try {
        const StorePointer store = of_group->clone();
        if (listen(*store)) deliver(agreed_report(*store));
      } catch (const std::exception&) {
        // Without a store the other ranks cannot be asked; watch() continues without them.
      }
    } while (is_to_listen_again(*of_group));
    const std::lock_guard lock(turn_);
    silent_ = true;
    changed_.notify_all();
  }

 private:
  // Whether the store prints nothing when its server has ended: c10d::TCPStore prints errors then.
  static bool fails_quietly(const c10d::Store& store) {
    return dynamic_cast<const JobStore*>(&store) != nullptr;
  }

  bool is_to_listen_again(const c10d::Store& store) {
    if (!fails_quietly(store)) return false;
    std::unique_lock lock(turn_);
    return !changed_.wait_for(lock, kConnectAgain, [&] { return stopped_ || asked_; });
  }

  // Waits until an exchange of reports is to begin. Returns false if the group ends before. If
  // there are many ranks, those that are busy check the store less often.
  bool listen(c10d::Store& store) {
    const bool always = fails_quietly(store);
    const milliseconds while_busy = std::max(kListen, milliseconds(options_.size));
    const ReportExchange exchange(store, options_);
    auto next = Clock::now() + kListen;
    std::unique_lock lock(turn_);
    while (!changed_.wait_until(lock, next, [&] { return stopped_ || asked_; })) {
      lock.unlock();
      const bool is_quiet = Clock::now() - calls_->last_sign() >= options_.limit / 2;
      const bool asked = (always || is_quiet) && exchange.has_begun();
      next = Clock::now() + (is_quiet ? kListen : while_busy);
      lock.lock();
      if (!asked) continue;
      asked_ = true;
      changed_.notify_all();
    }
    return !stopped_;
  }

  LateReport agreed_report(c10d::Store& store) {
    std::unique_lock lock(turn_);
    const bool late = late_;
    lock.unlock();
    return ReportExchange(store, options_).report(late, [&] { return own_record(); });
  }

  RankRecord own_record() const {
    const CallLog::Snapshot snapshot = calls_->snapshot();
    std::vector<std::string> stack;
    // The thread of the latest call should make the next one, unless it is one of autograd, which
    // only makes calls in between.
    for (const pid_t thread : {snapshot.thread, formed_by_, getpid()}) {
      stack = stack_of(thread, kStack);
      if (says_something(stack)) break;
    }
    return RankRecord::of(snapshot, std::move(stack));
  }

  void deliver(const LateReport& report) {
    const std::lock_guard lock(turn_);
    report_ = report;
    changed_.notify_all();
  }

  // The rank that prints ends first. Its end must not become an error in the other ranks' programs,
  // so these hold their threads, for which it gives them time. The rest of a process continues,
  // because it may serve the store.
  [[noreturn]] void end(const LateReport& report) const {
    const bool prints = report.told_by == options_.rank;
    if (prints) completes_within(kToPrint, [text = report.text] { write_all(text); });
    completes_within(kToFlush, flush_streams);  // the hanging thread may hold a stream's lock
    const auto threads = {calls_->snapshot().thread, formed_by_, getpid()};
    for (const pid_t thread : threads) {
      if (!prints) hold(thread);
    }
    std::this_thread::sleep_for(prints ? kForTheOthers : kAfterTheCause + times_.pause);
    _exit(kLateRankCode);
  }

  const std::shared_ptr<CallLog> calls_;
  const WatchdogOptions options_;
  const ReportTimes times_ = ReportTimes::of(options_.size);
  const pid_t formed_by_;

  std::mutex turn_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool late_ = false;    // a collective of this rank has taken too long
  bool asked_ = false;   // a collective of any rank has
  bool silent_ = false;  // the thread of talk() no longer uses the store
  std::optional<LateReport> report_;
};

Watchdog::Watchdog(StorePointer store, std::shared_ptr<CallLog> calls,
                   const WatchdogOptions& options)
    : post_(std::make_shared<Post>(std::move(calls), options)) {
  prepare_stacks();
  const WithoutSignals without;
  watching_ = std::thread([post = post_] { post->watch(); });
  talking_ = std::thread([post = post_, store = std::move(store)] { post->talk(store); });
}

Watchdog::~Watchdog() {
  post_->stop();
  watching_.join();
  post_->has_fallen_silent() ? talking_.join() : talking_.detach();
}

}  // namespace hasten
