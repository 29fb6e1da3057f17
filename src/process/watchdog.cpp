#include "process/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "hasten/base/text.h"
#include "launch/exit_codes.h"
#include "process/all_say.h"
#include "process/job_store.h"
#include "process/late_report.h"
#include "process/thread_stack.h"

namespace hasten {
namespace {

using std::chrono::milliseconds;
using Clock = CallLog::Clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kLook{100};    // at the clock
constexpr milliseconds kListen{250};  // to the others
// From the question on: until the stack is there, all have answered, the report is known, and it is
// given up. With the looks and the printing it is less than a second.
constexpr milliseconds kStack{100}, kAnswers{550}, kReport{650}, kAlone{750};
constexpr milliseconds kAgain{15};  // between two looks for an answer
constexpr milliseconds kForTheOthers{100}, kAfterTheCause{400};
constexpr milliseconds kToFlush{150};
constexpr milliseconds kLastAnswer{1000};  // of the store, when a group ends

const std::string kAsked = "watchdog/asked", kReported = "watchdog/report";
std::string record_key(std::int64_t rank) { return str("watchdog/record/", rank); }

// That of a thread which only waits for work of autograd says nothing.
bool says_something(const std::vector<std::string>& stack) {
  for (const std::string& line : stack) {
    if (line.find("ReadyQueue::pop") != line.npos) return false;
  }
  return !stack.empty();
}

void write_all(const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = write(STDERR_FILENO, left.data(), left.size());
    if (written <= 0) return;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

// What was printed so far; the thread that hangs may hold a stream for ever.
void flush_streams() {
  auto flushed = std::make_shared<std::promise<void>>();
  const auto done = flushed->get_future();
  std::thread([flushed] {
    std::cout.flush();
    std::fflush(nullptr);
    flushed->set_value();
  }).detach();
  done.wait_for(kToFlush);
}

// Signals are for the program's own threads.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

std::string place_key(std::int64_t rank) { return str("watchdog/place/", rank); }

void tell_place(c10d::Store& store, std::int64_t rank) {
  store.set(place_key(rank), Whereabouts::own().to_text());
}

class Watchdog::Post {
 public:
  Post(std::shared_ptr<CallLog> calls, const WatchdogOptions& options)
      : calls_(std::move(calls)), options_(options), formed_by_(gettid()) {}

  void stop() {
    const std::lock_guard lock(turn_);
    stopped_ = true;
    changed_.notify_all();
  }
  // Whether the thread that talks has ended, or does so soon.
  bool has_fallen_silent() {
    std::unique_lock lock(turn_);
    return changed_.wait_for(lock, kLastAnswer, [&] { return silent_; });
  }

  // Until the group ends, or the process.
  void watch() {
    std::unique_lock lock(turn_);
    while (!changed_.wait_for(lock, kLook, [&] { return stopped_ || asked_; })) {
      if (is_late()) asked_ = true;
    }
    if (stopped_) return;
    changed_.notify_all();
    changed_.wait_for(lock, kAlone, [&] { return stopped_ || report_.has_value(); });
    if (stopped_) return;
    const LateReport report = report_ ? *report_ : own_report();
    lock.unlock();
    end(report);
  }

  // With the other ranks, through a store of its own.
  void talk(const StorePointer& of_group) {
    try {
      const StorePointer store = of_group->clone();
      if (listen(*store)) deliver(agreed_report(*store));
    } catch (const std::exception&) {
      // Without a store nobody can be asked; the clock goes on.
    }
    const std::lock_guard lock(turn_);
    silent_ = true;
    changed_.notify_all();
  }

 private:
  bool is_late() const {
    const auto since = calls_->waits_since();
    return since && Clock::now() - *since >= options_.limit;
  }

  // Until there is a question; false where the group ends before. Of many ranks, those that are
  // busy ask the store less often.
  bool listen(c10d::Store& store) {
    const bool always = dynamic_cast<JobStore*>(&store) != nullptr;
    const milliseconds while_busy = std::max(kListen, milliseconds(options_.size));
    auto next = Clock::now() + kListen;
    std::unique_lock lock(turn_);
    while (!changed_.wait_until(lock, next, [&] { return stopped_ || asked_; })) {
      lock.unlock();
      const bool is_quiet = Clock::now() - calls_->last_sign() >= options_.limit / 2;
      const bool asked = (always || is_quiet) && store.check({kAsked});
      next = Clock::now() + (is_quiet ? kListen : while_busy);
      lock.lock();
      if (!asked) continue;
      asked_ = true;
      changed_.notify_all();
    }
    return !stopped_;
  }

  LateReport agreed_report(c10d::Store& store) const {
    const auto began = Clock::now();
    const bool judges = is_late() && store.add(kAsked, 1) == 1;
    const RankRecord own = own_record();
    store.set(record_key(options_.rank), own.to_text());
    if (judges) {
      const LateReport report = judged(store, own, began + kAnswers);
      store.set(kReported, report.to_text());
      return report;
    }
    while (!store.check({kReported})) {
      if (Clock::now() >= began + kReport) throw std::runtime_error("no report");
      std::this_thread::sleep_for(kAgain);
    }
    return LateReport::of_text(text_at(store, kReported));
  }

  LateReport judged(c10d::Store& store, const RankRecord& own, Clock::time_point deadline) const {
    const auto size = static_cast<std::size_t>(options_.size);
    std::vector<std::optional<RankRecord>> records(size);
    records[static_cast<std::size_t>(options_.rank)] = own;
    std::size_t answered = 1;
    while (true) {
      for (std::size_t rank = 0; rank < size; ++rank) {
        const std::string key = record_key(static_cast<std::int64_t>(rank));
        if (records[rank] || !store.check({key})) continue;
        records[rank] = RankRecord::of_text(text_at(store, key));
        ++answered;
      }
      if (answered == size || Clock::now() >= deadline) break;
      std::this_thread::sleep_for(kAgain);
    }
    const Whereabouts here = Whereabouts::own();
    std::vector<Whereabouts> where;
    std::map<std::int64_t, std::string> seen;
    for (std::size_t rank = 0; rank < size; ++rank) {
      where.push_back(
          Whereabouts::of_text(text_at(store, place_key(static_cast<std::int64_t>(rank)))));
      if (const std::string state = seen_of(where.back(), here); !records[rank] && !state.empty())
        seen[static_cast<std::int64_t>(rank)] = state;
    }
    return late_report(records, where, seen, options_.rank, limit_seconds());
  }

  // Of a rank that cannot ask the others.
  LateReport own_report() const {
    const auto size = static_cast<std::size_t>(options_.size);
    std::vector<std::optional<RankRecord>> records(size);
    records[static_cast<std::size_t>(options_.rank)] = own_record();
    std::map<std::int64_t, std::string> seen;
    for (std::int64_t rank = 0; rank < options_.size; ++rank)
      seen[rank] = "nor does the job's store";
    return late_report(records, std::vector<Whereabouts>(size), seen, options_.rank,
                       limit_seconds());
  }

  RankRecord own_record() const {
    const CallLog::Snapshot snapshot = calls_->snapshot();
    std::vector<std::string> stack;
    // Who has called last is who should call next; a thread of autograd does so in between only.
    for (const pid_t thread : {snapshot.thread, formed_by_, getpid()}) {
      stack = stack_of(thread, kStack);
      if (says_something(stack)) break;
    }
    return RankRecord::of(snapshot, std::move(stack));
  }

  double limit_seconds() const { return std::chrono::duration<double>(options_.limit).count(); }

  void deliver(const LateReport& report) {
    const std::lock_guard lock(turn_);
    report_ = report;
    changed_.notify_all();
  }

  // The one that tells ends first. Its end must not reach the others' programs as an error of their
  // own, so those keep still: it gives them the time to. The rest of a process goes on, as it may
  // serve the store.
  [[noreturn]] void end(const LateReport& report) const {
    const bool tells = report.told_by == options_.rank;
    if (tells) write_all(report.text);
    flush_streams();
    const auto threads = {calls_->snapshot().thread, formed_by_, getpid()};
    for (const pid_t thread : threads) {
      if (!tells) hold(thread);
    }
    std::this_thread::sleep_for(tells ? kForTheOthers : kAfterTheCause);
    _exit(kLateRankCode);
  }

  const std::shared_ptr<CallLog> calls_;
  const WatchdogOptions options_;
  const pid_t formed_by_;

  std::mutex turn_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool asked_ = false;   // somebody waits for too long, here or elsewhere
  bool silent_ = false;  // nothing more is said to the store
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
